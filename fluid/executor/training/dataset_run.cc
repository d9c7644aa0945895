#include "fluid/executor/training/dataset_run.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/training/batches_ahead_impl.h"
#include "fluid/executor/training/dataset_progress_impl.h"
#include "fluid/executor/training/dataset_runner_impl.h"
#include "fluid/executor/training/trainer_threads.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {
namespace {

// Workers that take their steps together agree on so many at once.
constexpr int kAgreedSteps = 8;

std::vector<std::string> names_of(const std::vector<data::UseVar>& variables) {
  std::vector<std::string> names;
  names.reserve(variables.size());
  for (const data::UseVar& variable : variables) names.push_back(variable.name);
  return names;
}

// Steps that this worker may take until all workers agree on more.
class Agreement {
 public:
  explicit Agreement(CommRuntime* runtime)
      : runtime_(runtime != nullptr && runtime->steps_together() ? runtime : nullptr) {}

  // False when the first of the workers has no batch left. `ready` gives how many of kAgreedSteps
  // this one has.
  template <class Ready>
  bool may_step(const Ready& ready) {
    if (runtime_ == nullptr) return true;
    if (agreed_ == 0) agreed_ = runtime_->common_steps(ready(), kAgreedSteps);
    if (agreed_ == 0) return false;
    --agreed_;
    return true;
  }
  // The next step is one that was agreed on.
  bool has_more() const { return agreed_ > 0; }

 private:
  CommRuntime* runtime_;  // null: each worker goes on alone
  int agreed_ = 0;
};

class DatasetRunner {
 public:
  explicit DatasetRunner(const DatasetJob& job)
      : job_(job),
        run_(job.run),
        threads_(threads(job)),
        goes_on_(job.run.position != nullptr && !job.run.position->empty()),
        source_(begin(job)),
        progress_(job.run, job.name, source_->records_left()),
        batches_(std::move(source_), names_of(job.dataset.use_var()),
                 std::max<size_t>(kAgreedSteps, 2 * static_cast<size_t>(threads_)) + 2) {}

  DatasetResult run() {
    if (threads_ == 1) {
      train_alone();
    } else {
      train_in_threads();
    }
    batches_.end();
    if (run_.position != nullptr) run_.position->clear();
    return progress_.finish(waited_.load(), batches_.source());
  }

 private:
  static int threads(const DatasetJob& job) {
    const DatasetRun& run = job.run;
    if (run.thread < 0 || run.thread > ExecutorOptions::kMaxThreads) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "so many threads cannot train",
                   .where = str_cat(job.name, ", DatasetRun::thread"),
                   .expected = str_cat("0 to ", ExecutorOptions::kMaxThreads),
                   .got = str_cat(run.thread),
                   .fix = "set it to the number of cores, or leave it at 0"});
    }
    const bool of_job = job.runtime != nullptr && job.runtime->has_trainer_threads();
    if (!job.threads || !(of_job || run.hogwild)) return 1;
    return run.thread != 0 ? run.thread : job.dataset.thread();
  }

  static std::unique_ptr<data::DatasetBatches> begin(const DatasetJob& job) {
    auto batches = job.dataset.batches(job.parts);
    const std::string* position = job.run.position;
    if (position != nullptr && !position->empty()) batches->seek(*position);
    return batches;
  }

  // What `wait` gives, its time counted.
  template <class Wait>
  auto waited_for(const Wait& wait) {
    const TimePoint begin = steady_clock().now();
    auto result = wait();
    waited_ += std::chrono::duration<double>(steady_clock().now() - begin).count();
    return result;
  }
  auto next() {
    return waited_for([this] { return batches_.take(); });
  }
  int ready() {
    return waited_for([this] { return batches_.wait_for(kAgreedSteps); });
  }

  void train_alone() {
    Agreement agreement(job_.runtime);
    bool trained = false;
    while (agreement.may_step([this] { return ready(); })) {
      auto batch = next();
      if (!batch) return;
      if (agreement.has_more()) tell_next();
      train(*batch);
      trained = true;
    }
    job_.executor.look_at_steps();
    if (batches_.wait_for(1) == 0) return;
    if (!trained && !goes_on_) throw_alone();
    run_.logger.warning(job_.name,
                        "another worker has no batches left; the rest of this one's are left out");
  }

  [[noreturn]] void throw_alone() const {
    throw_error(ErrorCode::kPrecondition,
                {.what = "nothing can be trained: another worker has no batch",
                 .where = job_.name,
                 .expected = "at least one batch for each worker",
                 .got = "a worker whose files have none, or that has no files",
                 .fix = "give each worker a file, or let InMemoryDataset::global_shuffle share the "
                        "records out"});
  }

  // What follows the batch that is about to be trained.
  void tell_next() {
    const BatchesAhead::Batch* next = job_.runtime == nullptr ? nullptr : batches_.peek();
    if (next != nullptr) job_.runtime->will_feed(job_.program, next->feed);
  }

  // Who is called after a step sees the position behind it; one that failed is not behind us.
  void train(const BatchesAhead::Batch& batch) {
    const uint64_t before = job_.executor.steps_run(job_.program);
    const std::string former = run_.position == nullptr ? "" : *run_.position;
    if (run_.position != nullptr) *run_.position = batch.position;
    try {
      progress_.batch_over(batch.samples, job_.step(job_.executor, batch.feed));
    } catch (...) {
      const bool trained = job_.executor.steps_run(job_.program) != before;
      if (run_.position != nullptr && !trained) *run_.position = former;
      throw;
    }
  }

  void train_in_threads() {
    // Random numbers are those of a batch, whichever thread takes it.
    const uint64_t before = job_.executor.steps_run(job_.program);
    std::atomic<uint64_t> after = before;
    const TrainerThread body = [&](uint32_t, Executor& own) {
      try {
        while (auto batch = next()) {
          own.set_steps_run(job_.program, before + batch->number);
          progress_.batch_over(batch->samples, job_.step(own, batch->feed));
          ++after;
        }
        own.look_at_steps();
      } catch (...) {
        batches_.stop();
        throw;
      }
    };
    const auto count = static_cast<uint32_t>(threads_);
    if (run_.hogwild) {
      run_hogwild_threads(job_.executor, job_.program, count, body);
    } else {
      run_trainer_threads(job_.executor, job_.program, count, body, job_.runtime);
    }
    job_.executor.set_steps_run(job_.program, after);
  }

  const DatasetJob& job_;
  const DatasetRun& run_;
  const int threads_;
  const bool goes_on_;  // from a position
  std::unique_ptr<data::DatasetBatches> source_;
  DatasetProgressLog progress_;
  std::atomic<double> waited_ = 0;
  BatchesAhead batches_;
};

}  // namespace

std::vector<data::UseVar> use_vars(const std::vector<Variable>& variables) {
  std::vector<data::UseVar> all;
  all.reserve(variables.size());
  for (const Variable& variable : variables) {
    all.push_back({.name = variable.name(),
                   .dtype = variable.dtype(),
                   .shape = variable.shape().to_vector(),
                   .lod_level = variable.desc().lod_level});
  }
  return all;
}

bool is_for_test(const Program& program) {
  for (int32_t i = 0; i < program.block_count(); ++i) {
    for (const auto& op : program.block(i).ops()) {
      const bool fetches = has_role(op->role, OpRole::kRpc) || has_role(op->role, OpRole::kDist);
      if (!has_role(op->role, OpRole::kForward) && !fetches) return false;
      if (fetches && schema_of(program, *op).comm == CommKind::kSends) return false;
      const auto found = op->attrs.find("is_test");
      if (found != op->attrs.end() && !std::get<bool>(found->second)) return false;
    }
  }
  return true;
}

DatasetResult run_dataset(const DatasetJob& job) {
  return DatasetRunner(job).run();
}

}  // namespace fleet::fluid

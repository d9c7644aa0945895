#include "fluid/executor/training/trainer_threads.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fluid/ops/loss/metric.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {
namespace {

// One thread's values: a copy of everything that the scope holds.
std::unique_ptr<Scope> copy_of(const Scope& scope) {
  auto copy = std::make_unique<Scope>(&scope);
  for (const auto& name : scope.local_names()) {
    const auto* tensor = std::get_if<Tensor>(scope.find_local(name));
    if (tensor == nullptr || !tensor->initialized()) continue;
    copy->var(name).emplace<Tensor>(tensor->clone());
    if (const auto* keeper = scope.keeper(name)) copy->set_keeper(name, *keeper);
  }
  return copy;
}

// What each thread counts by itself: the examples of auc ops. Those since the states were made are
// added up over the threads (`sums`), those of the last few batches are a thread's own.
std::vector<std::string> counts_of(const Program& program, bool sums) {
  std::vector<std::string> names;
  for (const auto& op : program.global_block().ops()) {
    if (op->type != "auc") continue;
    const bool whole = parse_attributes<AucAttrs>(op->type, op->attrs).slide_steps == 0;
    if (whole != sums) continue;
    names.push_back(op->output("StatPosOut").front());
    names.push_back(op->output("StatNegOut").front());
  }
  return names;
}

// Counts of all threads, from those that they began with.
class Counts {
 public:
  Counts(const Program& program, Scope& scope) : scope_(scope) {
    for (std::string& name : counts_of(program, true)) {
      const Tensor* tensor = count_in(scope, name);
      if (tensor == nullptr) continue;
      counts_.push_back({std::move(name), tensor->clone(), tensor->clone()});
    }
    for (std::string& name : counts_of(program, false)) {
      const Tensor* tensor = count_in(scope, name);
      if (tensor != nullptr) recent_.emplace_back(std::move(name), tensor->clone());
    }
  }

  // The thread's own counts, for threads that share everything else.
  void own(Scope& scope) const {
    for (const Count& count : counts_) scope.var(count.name).emplace<Tensor>(count.begin.clone());
    for (const auto& [name, tensor] : recent_) scope.var(name).emplace<Tensor>(tensor.clone());
  }
  // A thread has ended.
  void add(const Scope& scope) {
    for (Count& count : counts_) {
      const auto* end = scope.tensor(count.name).data<int64_t>();
      const auto* begin = count.begin.data<int64_t>();
      auto* sum = count.sum.data<int64_t>();
      for (int64_t i = 0; i < count.sum.numel(); ++i) sum[i] += end[i] - begin[i];
    }
  }
  // All have.
  void put() const {
    for (const Count& count : counts_) scope_.tensor(count.name).copy_from(count.sum);
  }

 private:
  static const Tensor* count_in(const Scope& scope, const std::string& name) {
    const Value* value = scope.find(name);
    const auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
    return tensor != nullptr && tensor->dtype() == DType::kInt64 ? tensor : nullptr;
  }

  struct Count {
    std::string name;
    Tensor begin;
    Tensor sum;
  };
  Scope& scope_;
  std::vector<Count> counts_;
  std::vector<std::pair<std::string, Tensor>> recent_;
};

void check_nobody_saves(const Executor& executor, const Program& program) {
  if (!executor.has_after_run(program)) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "a worker with several trainer threads makes no checkpoints",
               .where = "run_trainer_threads",
               .expected = "an executor without fleet::resume",
               .got = "one that saves behind its steps",
               .fix = "train with one thread and more workers, or leave out fleet::resume"});
}

void check_trains_alone(const Program& program) {
  for (const auto& op : program.global_block().ops()) {
    if (schema_of(program, *op).run_by != RunBy::kRuntime) continue;
    throw_error(ErrorCode::kPrecondition,
                {.what = "threads cannot train on one set of parameters in this job",
                 .where = "run_hogwild_threads",
                 .expected = "a program that trains in one process",
                 .got = op->to_string(),
                 .fix = "leave hogwild out: asynchronous jobs have trainer threads, and others the "
                        "bits of one thread"});
  }
}

// Runs `train` and then `leave` for each scope in a thread of its own, `leave` by one at a time;
// then throws the first thing that was thrown.
template <class Train, class Leave>
void run_threads(const std::vector<std::unique_ptr<Scope>>& scopes, const Train& train,
                 const Leave& leave) {
  std::mutex mutex;  // guards failure
  std::exception_ptr failure;
  const auto guarded = [&](const auto& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::mutex leaving;
  std::vector<std::thread> threads;
  threads.reserve(scopes.size());
  for (uint32_t i = 0; i < scopes.size(); ++i) {
    threads.emplace_back([&, i] {
      guarded([&] { train(i, *scopes[i]); });
      guarded([&] {
        const std::lock_guard lock(leaving);
        leave(*scopes[i]);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

// The parent's values become the thread's.
void hand_over(const Scope& scope, Scope& parent) {
  for (const auto& name : scope.local_names()) {
    const auto* tensor = std::get_if<Tensor>(scope.find_local(name));
    Value* value = parent.find_local(name);
    if (tensor != nullptr && value != nullptr) *value = *tensor;
  }
}

// Another thread's failure is what the caller gets to see.
void leave_untrained(CommRuntime& runtime, Scope& scope, Scope& parent) {
  try {
    runtime.leave_thread(scope, parent);
    hand_over(scope, parent);
  } catch (const Error&) {
  }
}

}  // namespace

void run_trainer_threads(Executor& executor, const Program& program, uint32_t count,
                         const TrainerThread& body, CommRuntime* runtime) {
  check_nobody_saves(executor, program);
  if (runtime == nullptr) runtime = dynamic_cast<CommRuntime*>(program.runtime().get());
  if (runtime == nullptr) throw_no_trainer_threads("no runtime");
  Scope& parent = executor.scope();
  Counts counts(program, parent);
  std::vector<std::unique_ptr<Scope>> scopes;
  for (uint32_t i = 0; i < count; ++i) {
    scopes.push_back(copy_of(parent));
    try {
      runtime->enter_thread(i, *scopes.back(), parent);
    } catch (...) {
      scopes.pop_back();
      for (const auto& scope : scopes) leave_untrained(*runtime, *scope, parent);
      throw;
    }
  }
  run_threads(
      scopes,
      [&](uint32_t thread, Scope& scope) {
        Executor own = executor.share(scope);
        body(thread, own);
      },
      [&](Scope& scope) {
        runtime->leave_thread(scope, parent);
        hand_over(scope, parent);
        counts.add(scope);
      });
  counts.put();
}

void run_hogwild_threads(Executor& executor, const Program& program, uint32_t count,
                         const TrainerThread& body) {
  check_nobody_saves(executor, program);
  check_trains_alone(program);
  Counts counts(program, executor.scope());
  std::vector<std::unique_ptr<Scope>> scopes;
  for (uint32_t i = 0; i < count; ++i) {
    scopes.push_back(std::make_unique<Scope>(&executor.scope()));
    counts.own(*scopes.back());
  }
  run_threads(
      scopes,
      [&](uint32_t thread, Scope& scope) {
        Executor own = executor.share(scope);
        body(thread, own);
      },
      [&](const Scope& scope) { counts.add(scope); });
  counts.put();
}

}  // namespace fleet::fluid

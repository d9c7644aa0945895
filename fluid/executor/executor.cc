#include "fluid/executor/executor.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "fluid/core/device_memory.h"
#include "fluid/core/lod.h"
#include "fluid/executor/compiled_program_impl.h"
#include "fluid/executor/plan/plan_impl.h"
#include "fluid/executor/profile_impl.h"
#include "fluid/executor/shards/shard_feeds_impl.h"
#include "fluid/executor/step_runner_impl.h"
#include "fluid/executor/training/dataset_runner_impl.h"
#include "fluid/executor/unseen_steps_impl.h"
#include "fluid/kernels/device_kernels.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

// Workspaces that an executor keeps, and plans that a cache does: those of programs that are gone
// leave in the end.
constexpr size_t kMaxWorkspaces = 1024;
constexpr size_t kMaxPlans = 4096;

// Plans that several executors share.
class PlanCache {
 public:
  std::shared_ptr<const Plan> get(const PlanKey& key, const KernelTable& kernels, bool whole_step) {
    const std::lock_guard lock(mutex_);
    std::erase_if(plans_, [&key](const Entry& entry) {
      return entry.plan->key().program == key.program && !entry.plan->is_current();
    });
    for (const Entry& entry : plans_) {
      const PlanKey& other = entry.plan->key();
      if (other.program == key.program && other.block == key.block && other.feeds == key.feeds &&
          other.fetches == key.fetches && other.replicas == key.replicas &&
          other.device_sums == key.device_sums && other.tables_here == key.tables_here &&
          entry.whole_step == whole_step) {
        return entry.plan;
      }
    }
    plans_.push_back({Plan::compile(key, kernels, whole_step), whole_step});
    if (plans_.size() > kMaxPlans) plans_.erase(plans_.begin());
    return plans_.back().plan;
  }

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    bool whole_step;
  };
  std::mutex mutex_;
  std::vector<Entry> plans_;
};

constexpr const char* kOffsets =
    "offsets that ascend from 0 to the number of rows, or of sequences of the next level";

[[noreturn]] void throw_feed(std::string what, const std::string& name, std::string expected,
                             std::string got, std::string fix) {
  throw_error(ErrorCode::kFeed, {.what = std::move(what),
                                 .where = "feed '" + name + "'",
                                 .expected = std::move(expected),
                                 .got = std::move(got),
                                 .fix = std::move(fix)});
}

void check_feed(const PlanVar& var, const Tensor& fed, const StepShards& shards, bool cut) {
  const VarDesc& desc = *var.desc;
  if (!fed.initialized()) {
    throw_feed("an empty tensor is fed", var.name, "a tensor with memory", "nothing",
               "fill the tensor before feeding it");
  }
  if (fed.dtype() != desc.dtype) {
    throw_feed("a fed tensor has the wrong element type", var.name,
               std::string(dtype_name(desc.dtype)), std::string(dtype_name(fed.dtype())),
               "build the tensor with the type of the data variable");
  }
  if (!desc.shape.compatible(fed.shape())) {
    throw_feed("a fed tensor has the wrong shape", var.name, desc.shape.to_string(),
               fed.shape().to_string(), "feed rows of the shape that layers::data declared");
  }
  if (std::string fault = fault_of_lod(fed); !fault.empty()) {
    throw_feed("the sequences of a fed tensor do not fit it", var.name, kOffsets, std::move(fault),
               "give set_lod one offset more than there are sequences");
  }
  const int parts = shards.count();
  if (!cut || parts == 1 || desc.shape.rank() == 0 || desc.shape[0] >= 0) return;
  const int64_t samples = samples_of(fed);
  if (samples % parts == 0) return;
  const char* unit = fed.lod().empty() ? " rows" : " sequences";
  const int64_t below = samples / parts * parts;
  throw_error(
      ErrorCode::kUnevenBatch,
      {.what = str_cat("the", unit,
                       " of the batch do not divide into the logical shards of this process"),
       .where = "feed '" + var.name + "'",
       .expected = str_cat("a multiple of ", parts, unit, ", such as ",
                           below > 0 ? str_cat(below, " or ") : "", below + parts),
       .got = str_cat(samples, unit, " for ", parts, " of ", shards.total, " shards"),
       .fix = "change the batch size, or logical_shards"});
}

// Of the first fed variable that has a row for each sample.
int64_t rows_of(const Plan& plan, const std::vector<Tensor>& feeds) {
  for (const PlanVar& var : plan.vars()) {
    if (var.feed < 0 || var.desc->shape.rank() == 0 || var.desc->shape[0] >= 0) continue;
    return feeds[static_cast<size_t>(var.feed)].shape()[0];
  }
  return 0;
}

// The workspaces of one executor for one plan and scope.
struct CachedWorkspace {
  const Program* program = nullptr;
  int32_t block = 0;
  bool whole_step = true;
  std::unique_ptr<StepRunner> runner;
};

bool same_names(const Feed& feed, const std::vector<std::string>& names) {
  if (feed.size() != names.size()) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (feed[i].first != names[i]) return false;
  }
  return true;
}

bool same_names(const std::vector<Fetch>& fetch, const std::vector<std::string>& names) {
  if (fetch.size() != names.size()) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (fetch[i].name != names[i]) return false;
  }
  return true;
}

void check_runnable(const ProgramRuntime& attached) {
  const char* refusal = attached.refusal();
  if (refusal == nullptr) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "this program must not be run", .where = "Executor::run", .fix = refusal});
}

[[noreturn]] void refuse_replicas(std::string what, const char* field, std::string expected,
                                  std::string got) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = std::move(what),
               .where = str_cat("Executor::run of a CompiledProgram, ", field),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = str_cat("leave ", field, " to what the job has")});
}

// Shards of a job are given; replicas and trainers must be those.
void check_replicas(const Replication& asked, const StepShards& job) {
  if (asked.count > 0 && asked.count != job.count()) {
    refuse_replicas("the job has other replicas in this process", "places", str_cat(job.count()),
                    str_cat(asked.count));
  }
  if (asked.trainers == 1) {
    if (!asked.sums) return;
    refuse_replicas("who runs this program's communication averages its gradients",
                    "gradient_scale_strategy", "kCoeffNumDevice", "another");
  }
  if (asked.trainers * job.count() != job.total) {
    refuse_replicas("the job has other trainers", "num_trainers", str_cat(job.total / job.count()),
                    str_cat(asked.trainers));
  }
  if (asked.trainer_id * job.count() != job.begin) {
    refuse_replicas("this process is another trainer of the job", "trainer_id",
                    str_cat(job.begin / job.count()), str_cat(asked.trainer_id));
  }
}

void check_threads(int threads, const char* field) {
  if (threads >= 1 && threads <= ExecutorOptions::kMaxThreads) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "a step cannot have so many threads",
               .where = str_cat("ExecutorOptions.", field),
               .expected = str_cat("1 to ", ExecutorOptions::kMaxThreads),
               .got = str_cat(threads),
               .fix = "leave it out, or set it to the processor's cores"});
}

// The caller's core is the first of the share.
std::shared_ptr<TilePool> make_tile_pool(int threads, bool pinned) {
  const CoreShare share = core_share(Environment::of_process(), Cores::of_process());
  TilePool::Options options{.threads = threads, .spins = threads <= share.count};
  if (pinned && share.cores.size() > 1) {
    options.cores.assign(share.cores.begin() + 1, share.cores.end());
  }
  return std::make_shared<TilePool>(std::move(options));
}

}  // namespace

StartedStep::StartedStep(std::vector<Tensor> fetched) : fetched_(std::move(fetched)) {
  const auto away = std::find_if(fetched_.begin(), fetched_.end(),
                                 [](const Tensor& tensor) { return !tensor.place().is_cpu(); });
  if (away != fetched_.end()) made_ = mark_device(away->place());
}

StartedStep::~StartedStep() = default;
StartedStep::StartedStep(StartedStep&&) noexcept = default;
StartedStep& StartedStep::operator=(StartedStep&&) noexcept = default;

std::vector<Tensor> StartedStep::wait() {
  std::vector<Tensor> results;
  for (Tensor& fetched : fetched_) {
    Tensor& result = results.emplace_back(std::move(fetched));
    if (result.place().is_cpu()) continue;
    const Tensor on_device = result;
    result = Tensor(on_device.dtype(), on_device.shape());
    result.share_lod(on_device);
    if (result.bytes() > 0) made_->copy_to_host(result.raw(), on_device.raw(), result.bytes());
  }
  fetched_.clear();
  made_.reset();
  return results;
}

struct Executor::State {
  Place place;
  ExecutorOptions options;
  std::shared_ptr<Scope> own_scope;
  Scope* scope = nullptr;
  std::shared_ptr<CommRuntime> runtime;
  FiniteWatch* watch = nullptr;
  std::shared_ptr<Profile> profile;                // null: nobody measures
  std::map<int, std::shared_ptr<TilePool>> pools;  // by threads
  std::shared_ptr<PlanCache> plans = std::make_shared<PlanCache>();
  UnseenSteps unseen;
  std::vector<CachedWorkspace> cached;     // most recent first
  std::map<uint64_t, uint64_t> steps_run;  // by program id
  std::map<uint64_t, AfterRun> after_run;  // by program id
  std::vector<Tensor> feeds;
  // The runtime of the program that ran last, so that it is looked for once.
  const ProgramRuntime* seen_runtime = nullptr;
  CommRuntime* found_runtime = nullptr;

  const KernelTable& kernels_for(const Program& program) const {
    return options.kernels != nullptr ? *options.kernels : kernel_table(program);
  }

  template <class Match>
  StepRunner* find_runner(Match match) {
    for (size_t i = 0; i < cached.size(); ++i) {
      if (!match(cached[i])) continue;
      if (!cached[i].runner->is_current()) {
        cached.erase(cached.begin() + static_cast<long>(i));
        return nullptr;
      }
      if (i != 0)
        std::rotate(cached.begin(), cached.begin() + static_cast<long>(i),
                    cached.begin() + static_cast<long>(i) + 1);
      return cached.front().runner.get();
    }
    return nullptr;
  }

  StepRunner& add_runner(const PlanKey& key, bool whole_step, Scope& where) {
    auto plan = plans->get(key, kernels_for(*key.program), whole_step);
    CachedWorkspace entry = {
        .program = key.program,
        .block = key.block,
        .whole_step = whole_step,
        .runner = std::make_unique<StepRunner>(std::move(plan), where, unseen)};
    cached.insert(cached.begin(), std::move(entry));
    if (cached.size() > kMaxWorkspaces) cached.pop_back();
    return *cached.front().runner;
  }

  CommRuntime* runtime_of(const Program& program) {
    const ProgramRuntime* attached = program.runtime().get();
    if (attached == nullptr) return runtime.get();
    if (attached != seen_runtime) {
      check_runnable(*attached);
      seen_runtime = attached;
      found_runtime = dynamic_cast<CommRuntime*>(program.runtime().get());
    }
    return found_runtime != nullptr ? found_runtime : runtime.get();
  }

  // The runtime of a job whose ranks this process joined: the executor's, or what the startup
  // program left in the scope.
  CommRuntime& job_runtime(const Program& program) {
    if (CommRuntime* known = runtime_of(program)) return *known;
    if (const auto* keeper = scope->keeper(kNcclId)) {
      runtime = std::dynamic_pointer_cast<CommRuntime>(keeper->lock());
    }
    if (runtime != nullptr) return *runtime;
    throw_error(ErrorCode::kPrecondition,
                {.what = "this process has not joined the other trainers",
                 .where = "Executor::run of a CompiledProgram, num_trainers",
                 .expected = "the runtime of a job with ranks",
                 .got = "none",
                 .fix = "transpile with mode \"nccl2\", call strategies::attach(exe, startup), and "
                        "run the startup program on this scope first"});
  }

  // Whether the program's sums over ranks are taken on the executor's device.
  bool sums_on_device(const Program& program) {
    if (place.is_cpu()) return false;
    const auto& ops = program.global_block().ops();
    const bool sums = std::any_of(ops.begin(), ops.end(), [&program](const auto& op) {
      return schema_of(program, *op).takes_devices;
    });
    CommRuntime* const known = sums ? runtime_of(program) : nullptr;
    return known != nullptr && known->sums_on(place);
  }

  // Whether no table that the program looks rows up in is on servers.
  bool tables_here(const Program& program, bool sums_on_devices) {
    if (place.is_cpu()) return true;
    if (!sums_on_devices && runtime_of(program) != nullptr) return false;
    for (int32_t i = 0; i < program.block_count(); ++i) {
      for (const auto& op : program.block(i).ops()) {
        const std::string& slot = schema_of(program, *op).table_slot;
        if (slot.empty()) continue;
        for (const std::string& table : op->input(slot)) {
          if (scope->keeper(table) != nullptr) return false;
        }
      }
    }
    return true;
  }

  // The logical shards of a step that are run here.
  StepShards shards(CommRuntime* known) const {
    if (known != nullptr) return known->shards();
    return {0, options.logical_shards, options.logical_shards};
  }

  int count_of(const Replication& replicas) const {
    if (replicas.count > 0) return replicas.count;
    return place.is_cpu() ? *options.threads : 1;
  }

  // Of replicas, what they change of a step.
  void replicate(Workspace::Step& step, const Replication& replicas) {
    if (step.runtime != nullptr) {
      check_replicas(replicas, step.shards);
    } else {
      const int count = count_of(replicas);
      step.shards = {0, count, count};
    }
    step.sums = replicas.sums;
    if (replicas.threads > 0) {
      step.threads = replicas.threads;
      give_tiles(step, replicas.threads);
    }
  }

  std::vector<Tensor> run_step(const Program& program, const Feed& feed,
                               const std::vector<Fetch>& fetch, const Replication* replicas,
                               bool later = false);

  std::shared_ptr<TilePool> pool(int threads) {
    auto& pool = pools[threads];
    if (!pool) pool = make_tile_pool(threads, *options.pin_threads);
    return pool;
  }

  // Of ops that have so many threads.
  void give_tiles(Workspace::Step& step, int threads) {
    step.tiles = threads > 1 ? Tiles(pool(threads).get()) : Tiles();
    step.tile_threads = threads;
  }

  Workspace::Step step_of(const Plan& plan) {
    Workspace::Step step;
    CommRuntime* known = runtime_of(plan.program());
    step.runtime = plan.communicates() ? known : nullptr;
    step.shards = shards(known);
    step.number = steps_run[plan.program().id()];
    step.check_nan_inf = *options.check_nan_inf;
    step.profile = profile.get();
    step.threads = *options.threads;
    give_tiles(step, *options.op_threads);
    step.graph = options.cuda_graph && !place.is_cpu();
    step.watch = known != nullptr ? known->finite_watch() : nullptr;
    if (step.watch != nullptr) step.watched_by = known;
    if (step.watch == nullptr) step.watch = watch;
    return step;
  }
};

Executor::Executor(Place place, ExecutorOptions options) : state_(std::make_unique<State>()) {
  check_place(place);
  if (options.logical_shards < 0) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "a step cannot have so few logical shards",
                                              .where = "ExecutorOptions.logical_shards",
                                              .expected = "0 or more",
                                              .got = str_cat(options.logical_shards),
                                              .fix = "leave it at 0, or set it to the shards"});
  }
  options.logical_shards = std::max(options.logical_shards, 1);
  options = with_environment(std::move(options));
  check_threads(*options.threads, "threads");
  check_threads(*options.op_threads, "op_threads");
  if (!options.profile->empty()) state_->profile = std::make_shared<Profile>(*options.profile);
  state_->place = place;
  state_->options = std::move(options);
  state_->own_scope = std::make_shared<Scope>();
  state_->scope = state_->own_scope.get();
}

Executor::Executor(Place place, Scope& scope, ExecutorOptions options)
    : Executor(place, std::move(options)) {
  state_->own_scope.reset();
  state_->scope = &scope;
}

Executor::~Executor() = default;
Executor::Executor(Executor&&) noexcept = default;
Executor& Executor::operator=(Executor&&) noexcept = default;

std::vector<Tensor> Executor::State::run_step(const Program& program, const Feed& feed,
                                              const std::vector<Fetch>& fetch,
                                              const Replication* replicas, bool later) {
  StepRunner* runner = find_runner([&](const CachedWorkspace& entry) {
    return entry.program == &program && entry.whole_step &&
           entry.runner->plan().key().replicas == (replicas != nullptr) &&
           same_names(feed, entry.runner->plan().key().feeds) &&
           same_names(fetch, entry.runner->plan().key().fetches);
  });
  if (runner == nullptr) {
    PlanKey key = {.program = &program,
                   .block = 0,
                   .feeds = {},
                   .fetches = {},
                   .place = place,
                   .replicas = replicas != nullptr,
                   .strict_place = options.strict_place,
                   .device_sums = sums_on_device(program)};
    key.tables_here = tables_here(program, key.device_sums);
    for (const auto& [name, tensor] : feed) key.feeds.push_back(name);
    for (const Fetch& wanted : fetch) key.fetches.push_back(wanted.name);
    runner = &add_runner(key, true, *scope);
  }
  const Plan& plan = runner->plan();
  Workspace::Step step = step_of(plan);
  if (replicas != nullptr) replicate(step, *replicas);
  feeds.clear();
  for (const auto& [name, tensor] : feed) feeds.push_back(tensor);
  for (const PlanVar& var : plan.vars()) {
    if (var.feed < 0) continue;
    check_feed(var, feeds[static_cast<size_t>(var.feed)], step.shards, plan.sharded());
  }
  step.feeds = feeds;
  if (step.runtime != nullptr && plan.sharded()) step.runtime->fed(rows_of(plan, feeds));
  std::vector<Tensor> results = runner->run(step, later);
  ++steps_run[program.id()];
  feeds.clear();
  return results;
}

std::vector<Tensor> Executor::run(const Program& program, const Feed& feed,
                                  const std::vector<Fetch>& fetch) {
  std::vector<Tensor> results = state_->run_step(program, feed, fetch, nullptr);
  tell_run(program);
  return results;
}

StartedStep Executor::start(const Program& program, const Feed& feed,
                            const std::vector<Fetch>& fetch) {
  StartedStep step(state_->run_step(program, feed, fetch, nullptr, true));
  tell_run(program);
  return step;
}

void Executor::look_at_steps() {
  state_->unseen.look();
}

void Executor::tell_run(const Program& program) {
  if (state_->after_run.empty()) return;
  const auto found = state_->after_run.find(program.id());
  if (found == state_->after_run.end()) return;
  const AfterRun after = found->second;
  after(*this, steps_run(program));
}

uint64_t Executor::steps_run(const Program& program) const {
  const auto found = state_->steps_run.find(program.id());
  return found == state_->steps_run.end() ? 0 : found->second;
}

void Executor::set_steps_run(const Program& program, uint64_t steps) {
  state_->steps_run[program.id()] = steps;
}

void Executor::set_after_run(const Program& program, AfterRun after) {
  if (after) {
    state_->after_run[program.id()] = std::move(after);
  } else {
    state_->after_run.erase(program.id());
  }
}

bool Executor::has_after_run(const Program& program) const {
  return state_->after_run.contains(program.id());
}

std::vector<Tensor> Executor::run(CompiledProgram& program, const Feed& feed,
                                  const std::vector<Fetch>& fetch) {
  CompiledProgram::State& compiled = *program.state_;
  if (!compiled.data_parallel) return run(compiled.program, feed, fetch);
  const Replication replicas = compiled.replication(state_->place);
  int total = 1;
  if (compiled.of_job()) {
    const StepShards job = state_->job_runtime(compiled.program).shards();
    check_replicas(replicas, job);
    total = job.total;
  }
  if (const Program* sharing = compiled.sharing(*state_->scope)) run(*sharing);
  const Program& parallel = compiled.parallel(total);
  set_steps_run(parallel, steps_run(compiled.program));
  for (int step = 1; step < compiled.options.exec_strategy.num_iteration_per_run; ++step) {
    state_->run_step(parallel, feed, {}, &replicas);
  }
  std::vector<Tensor> results = state_->run_step(parallel, feed, fetch, &replicas);
  set_steps_run(compiled.program, steps_run(parallel));
  tell_run(compiled.program);
  return results;
}

std::vector<Tensor> Executor::run(const Feed& feed, const std::vector<Fetch>& fetch) {
  return run(default_main_program(), feed, fetch);
}

DatasetResult Executor::train_from_dataset(const Program& program, data::DatasetBase& dataset,
                                           const DatasetRun& run) {
  CommRuntime* const runtime = state_->runtime_of(program);
  return run_dataset(
      {.name = "train_from_dataset",
       .executor = *this,
       .program = program,
       .step = [&](Executor& own,
                   const Feed& feed) { return own.start(program, feed, run.fetch_list); },
       .dataset = dataset,
       .run = run,
       .runtime = calls_runtime(program) ? runtime : nullptr,
       .parts = state_->shards(runtime).count(),
       .threads = true});
}

DatasetResult Executor::train_from_dataset(CompiledProgram& program, data::DatasetBase& dataset,
                                           const DatasetRun& run) {
  CompiledProgram::State& compiled = *program.state_;
  if (!compiled.data_parallel) return train_from_dataset(compiled.program, dataset, run);
  CommRuntime* runtime = nullptr;
  if (compiled.of_job()) {
    runtime = &state_->job_runtime(compiled.program);
  } else if (calls_runtime(compiled.program)) {
    runtime = state_->runtime_of(compiled.program);
  }
  const int parts = runtime != nullptr ? runtime->shards().count()
                                       : state_->count_of(compiled.replication(state_->place));
  return run_dataset({.name = "train_from_dataset",
                      .executor = *this,
                      .program = compiled.program,
                      .step =
                          [&](Executor& own, const Feed& feed) {
                            return StartedStep(own.run(program, feed, run.fetch_list));
                          },
                      .dataset = dataset,
                      .run = run,
                      .runtime = runtime,
                      .parts = parts});
}

DatasetResult Executor::infer_from_dataset(const Program& program, data::DatasetBase& dataset,
                                           const DatasetRun& run) {
  const auto test = [&](Executor& executor, const Program& tested) {
    return run_dataset(
        {.name = "infer_from_dataset",
         .executor = executor,
         .program = tested,
         .step = [&](Executor& own,
                     const Feed& feed) { return own.start(tested, feed, run.fetch_list); },
         .dataset = dataset,
         .run = run});
  };
  if (is_for_test(program)) return test(*this, program);
  const Program copy = program.clone(/*for_test=*/true);
  Executor own = share();
  return test(own, copy);
}

void Executor::run_block(const Program& program, int32_t block, Scope& scope,
                         std::optional<uint64_t> step) {
  State& s = *state_;
  StepRunner* runner = s.find_runner([&](const CachedWorkspace& entry) {
    return entry.program == &program && entry.block == block && !entry.whole_step &&
           &entry.runner->scope() == &scope;
  });
  if (runner == nullptr) {
    const PlanKey key = {.program = &program,
                         .block = block,
                         .feeds = {},
                         .fetches = {},
                         .place = s.place,
                         .strict_place = s.options.strict_place};
    runner = &s.add_runner(key, false, scope);
  }
  Workspace::Step run = s.step_of(runner->plan());
  if (step) run.number = *step;
  runner->run(run);
  ++s.steps_run[program.id()];
}

Executor Executor::share() const {
  Executor other = share(*state_->scope);
  other.state_->options.op_threads = state_->options.op_threads;
  other.state_->pools[*state_->options.op_threads] = state_->pool(*state_->options.op_threads);
  return other;
}

Executor Executor::share(Scope& scope) const {
  ExecutorOptions options = state_->options;
  options.op_threads = 1;
  Executor other(state_->place, scope, std::move(options));
  other.state_->own_scope = state_->own_scope;
  other.state_->runtime = state_->runtime;
  other.state_->watch = state_->watch;
  other.state_->plans = state_->plans;
  other.state_->profile = state_->profile;
  return other;
}

Scope& Executor::scope() {
  return *state_->scope;
}

const Place& Executor::place() const {
  return state_->place;
}

void Executor::set_comm_runtime(std::shared_ptr<CommRuntime> runtime) {
  state_->runtime = std::move(runtime);
}

void Executor::set_finite_watch(FiniteWatch* watch) {
  state_->watch = watch;
}

}  // namespace fleet::fluid

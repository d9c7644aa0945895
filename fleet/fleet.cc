#include "fleet/fleet.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <sys/resource.h>
#include <utility>

#include "base/caught.h"
#include "base/error.h"
#include "base/process/at_exit.h"
#include "base/strings.h"
#include "fleet/checkpoints/checkpoint_job.h"
#include "fleet/checkpoints/paddle_check_points.h"
#include "fleet/origin_guard.h"
#include "fleet/phase_timer.h"
#include "fleet/status_reporter.h"
#include "fluid/data/formats/file_list.h"
#include "fluid/io/checkpoint.h"
#include "fluid/io/growing_tables.h"
#include "fluid/io/inference_model.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/program/default_programs.h"
#include "strategies/dump/program_dump.h"
#include "strategies/jobs/step_watch.h"

namespace fleet {
namespace {

// How long a loop may take to say what it waits for.
constexpr Duration kAskFor = std::chrono::milliseconds(500);

[[noreturn]] void refuse(std::string what, std::string where, std::string fix) {
  throw_error(ErrorCode::kPrecondition, {.what = std::move(what),
                                         .where = std::move(where),
                                         .expected = {},
                                         .got = {},
                                         .fix = std::move(fix)});
}

LogLevel level_of(const strategies::RuntimeConfig& config, const role_maker::ClusterSpec& cluster) {
  if (!config.log_level.empty()) return parse_log_level(config.log_level);
  return cluster.is_distributed() && cluster.index == 0 ? LogLevel::kInfo : LogLevel::kWarning;
}

// std::bad_alloc says neither who nor what to do.
void with_memory(const role_maker::ClusterSpec& cluster, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    caught_status(cluster.process_name()).throw_if_error();
  }
}

}  // namespace

struct Fleet::State {
  const TimePoint started = steady_clock().now();
  Environment environment;
  bool initialized = false;
  role_maker::ClusterSpec cluster;
  strategies::RuntimeConfig config;
  Logger logger;

  std::string strategy_text = "  none yet\n";
  fluid::Program* origin_main = nullptr;
  fluid::Program* origin_startup = nullptr;
  std::unique_ptr<strategies::StrategyResult> rewritten;

  // Workers only; made when first asked for.
  std::unique_ptr<CheckpointJob> checkpoints;
  // Servers only.
  std::unique_ptr<fluid::Executor> server_executor;

  std::shared_ptr<strategies::JobObserver> observer = std::make_shared<strategies::JobObserver>();
  std::shared_ptr<PhaseTimer> timer = std::make_shared<PhaseTimer>();
  WaitList::Watch timer_watch;
  std::unique_ptr<StatusReporter> status_reporter;
  std::atomic<bool> stopped = false;  // stop_worker() has ended well
  std::atomic<bool> saves = false;    // when it is told to end
  std::unique_ptr<AtExit> at_exit;

  void attend();
  std::string worker_progress() const;
  std::string progress() const;
  std::string nonfinite() const;
};

// Answers people from here on.
void Fleet::State::attend() {
  if (!cluster.is_distributed()) return;
  const auto text = environment.get("FLEET_PROGRESS_FD");
  const bool worker = cluster.is_worker();
  if (worker) {
    timer_watch =
        observer->waits.watch("training thread", [timer = timer] { return timer->now(); });
  }
  status_reporter = std::make_unique<StatusReporter>(StatusReporterOptions{
      .progress_fd = text ? static_cast<int>(parse_int(*text).value_or(-1)) : -1,
      .progress = [this,
                   worker] { return (worker ? worker_progress() : progress()) + nonfinite(); },
      .stall =
          [observer = observer] {
            const auto stall = observer->stall();
            return stall ? stall->to_line() : std::string();
          },
      .waits = [observer = observer] { return observer->waits.ask(kAskFor); },
      .logger = logger});
  observer->on_nonfinite = [this] {
    if (status_reporter) status_reporter->write_progress();
  };
  at_exit = std::make_unique<AtExit>([this] { status_reporter.reset(); });
}

std::string Fleet::State::nonfinite() const {
  const std::string keys = observer->nonfinite();
  return keys.empty() ? keys : " " + keys;
}

// A launcher knows by the last line whether the worker has taken leave.
std::string Fleet::State::worker_progress() const {
  return str_cat(timer->progress(), saves ? " saves=1" : "", " completed=", stopped ? 1 : 0);
}

// Of a server.
std::string Fleet::State::progress() const {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  const double up = std::chrono::duration<double>(steady_clock().now() - started).count();
  std::string text =
      str_cat("bytes_in=", observer->bytes_in.load(), " bytes_out=", observer->bytes_out.load(),
              " updates=", observer->updates.load(),
              " cpu_s=", seconds(usage.ru_utime) + seconds(usage.ru_stime), " up_s=", up);
  const double staleness = observer->staleness;
  if (staleness >= 0) text += str_cat(" staleness=", staleness);
  return text + observer->table_progress();
}

Fleet::Fleet(Environment environment) : state_(std::make_unique<State>()) {
  state_->environment = std::move(environment);
}

Fleet::~Fleet() = default;

Fleet::State& Fleet::initialized(const char* caller) const {
  if (!state_->initialized) {
    refuse("fleet is not initialised", caller, "call fleet::init(role_maker) first");
  }
  return *state_;
}

Fleet::State& Fleet::minimized(const char* caller) const {
  State& state = initialized(caller);
  if (!state.rewritten) {
    refuse("there are no rewritten programs yet", caller,
           "call distributed_optimizer(…).minimize(loss) first");
  }
  return state;
}

void Fleet::init(role_maker::RoleMakerBase& maker, const InitOptions& options) {
  maker.generate_role();
  state_->cluster = maker.cluster_spec();
  state_->config = strategies::RuntimeConfig::from_environment(state_->environment);
  if (options.on_nonfinite) {
    const bool stop = *options.on_nonfinite == strategies::OnNonfinite::kStop;
    state_->config.on_nonfinite = stop ? "stop" : "warn";
    state_->config.origins["on_nonfinite"] = "code";
  }
  state_->logger.set_level(level_of(state_->config, state_->cluster));
  state_->logger.set_identity(state_->cluster.process_name());
  state_->initialized = true;
}

bool Fleet::is_worker() const {
  return initialized("is_worker").cluster.is_worker();
}
bool Fleet::is_server() const {
  return initialized("is_server").cluster.is_server();
}
bool Fleet::is_first_worker() const {
  return initialized("is_first_worker").cluster.is_first_worker();
}
int Fleet::worker_index() const {
  const auto& cluster = initialized("worker_index").cluster;
  return cluster.is_worker() ? cluster.index : 0;
}
int Fleet::worker_num() const {
  return initialized("worker_num").cluster.worker_num;
}
int Fleet::server_index() const {
  const auto& cluster = initialized("server_index").cluster;
  return cluster.is_server() ? cluster.index : 0;
}
int Fleet::server_num() const {
  return initialized("server_num").cluster.server_num;
}
std::vector<std::string> Fleet::worker_endpoints() const {
  return initialized("worker_endpoints").cluster.worker_endpoints;
}
std::vector<std::string> Fleet::server_endpoints() const {
  return initialized("server_endpoints").cluster.server_endpoints;
}
std::string Fleet::mode() const {
  return std::string(role_maker::to_string(initialized("mode").cluster.mode));
}
int Fleet::processes() const {
  return worker_num() + server_num();
}

std::vector<std::string> Fleet::split_files(std::span<const std::string> files) const {
  return fluid::data::split_files(files, worker_index(), worker_num());
}

DistributedOptimizer Fleet::distributed_optimizer(fluid::optimizer::Optimizer& optimizer,
                                                  strategies::DistributedStrategy strategy) {
  initialized("distributed_optimizer");
  return DistributedOptimizer(*this, optimizer, std::move(strategy));
}

DistributedOptimizer Fleet::distributed_optimizer(fluid::optimizer::Optimizer& optimizer,
                                                  CommonOptions options) {
  const auto& cluster = initialized("distributed_optimizer").cluster;
  return distributed_optimizer(optimizer,
                               strategies::default_strategy(cluster, options.logical_shards));
}

DistributedOptimizer::DistributedOptimizer(Fleet& fleet, fluid::optimizer::Optimizer& optimizer,
                                           strategies::DistributedStrategy strategy)
    : fleet_(fleet), optimizer_(optimizer), strategy_(std::move(strategy)) {}

void DistributedOptimizer::minimize(const fluid::Variable& loss) {
  minimize(loss, {});
}

void DistributedOptimizer::minimize(const fluid::Variable& loss,
                                    const fluid::optimizer::MinimizeOptions& options) {
  require_first("DistributedOptimizer::minimize");
  optimizer().minimize(loss, completed(options));
  rewrite(loss.program(), options.startup_program);
}

std::vector<fluid::ParamGrad> DistributedOptimizer::backward(
    const fluid::Variable& loss, const fluid::optimizer::MinimizeOptions& options) {
  require_first("DistributedOptimizer::backward");
  return optimizer().backward(loss, completed(options));
}

void DistributedOptimizer::apply_gradients(std::vector<fluid::ParamGrad> params_grads,
                                           fluid::Program* startup_program) {
  constexpr const char* kWhere = "DistributedOptimizer::apply_gradients";
  require_first(kWhere);
  if (params_grads.empty()) {
    refuse("there are no gradients to apply", kWhere, "give it what backward(loss) returned");
  }
  fluid::Program& main = params_grads.front().param.program();
  optimizer().apply_gradients(std::move(params_grads), startup_program);
  rewrite(main, startup_program);
}

// The user's, in mixed precision where the strategy says so.
fluid::optimizer::Optimizer& DistributedOptimizer::optimizer() {
  const auto amp = strategy_.get() ? strategy_.get()->mixed_precision() : std::nullopt;
  if (!amp) return optimizer_;
  if (!decorated_) {
    decorated_ =
        std::make_shared<fluid::mixed_precision::OptimizerWithMixedPrecision>(optimizer_, *amp);
  }
  return *decorated_;
}

fluid::optimizer::MinimizeOptions DistributedOptimizer::completed(
    fluid::optimizer::MinimizeOptions options) const {
  if (!strategy_.get()) return options;
  auto checkpoints = strategy_.get()->recompute_checkpoints();
  if (checkpoints.empty() || checkpoints == options.checkpoints) return options;
  if (!options.checkpoints.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "two places name different checkpoints for recomputation",
                 .where = "MinimizeOptions::checkpoints, recompute_checkpoints of the strategy",
                 .expected = "the same in both, or only one of them",
                 .got = str_cat(join(options.checkpoints, ","), " and ", join(checkpoints, ",")),
                 .fix = "leave one out"});
  }
  options.checkpoints = std::move(checkpoints);
  return options;
}

void DistributedOptimizer::require_first(const char* caller) const {
  if (!fleet_.state_->rewritten) return;
  refuse("the programs have been rewritten before", caller,
         "call minimize, or apply_gradients, once; use one Fleet for each program that is trained");
}

void DistributedOptimizer::rewrite(fluid::Program& main, fluid::Program* given_startup) {
  Fleet::State& state = *fleet_.state_;
  fluid::Program& startup =
      given_startup != nullptr ? *given_startup : fluid::default_startup_program();
  const auto strategy =
      strategy_.get() ? strategy_.get() : strategies::default_strategy(state.cluster, 0).get();
  state.rewritten = std::make_unique<strategies::StrategyResult>(strategy->rewrite(
      {main, startup, state.cluster, state.config, state.logger, state.observer}));
  if (state.cluster.is_distributed() && state.cluster.is_worker()) {
    state.rewritten->runtime = timed(std::move(state.rewritten->runtime), state.timer,
                                     state.cluster.mode == role_maker::Mode::kCollective);
  }
  if (!state.cluster.is_server()) {
    strategies::watch_steps(*state.rewritten->runtime, state.config, state.cluster.index,
                            state.observer, state.logger);
  }
  state.strategy_text = strategy->describe(state.config);
  state.origin_main = &main;
  state.origin_startup = &startup;
  state.rewritten->main.set_runtime(state.rewritten->runtime);
  state.rewritten->startup.set_runtime(state.rewritten->runtime);
  if (state.cluster.is_distributed()) {
    main.set_runtime(std::make_shared<OriginGuard>());
    startup.set_runtime(std::make_shared<OriginGuard>());
  }
  fluid::set_default_programs(state.rewritten->main, state.rewritten->startup);
  fleet_.dump_programs(*strategy);
}

void Fleet::dump_programs(const strategies::Strategy& strategy) const {
  const State& state = *state_;
  if (state.config.dump_program.empty()) return;
  const std::filesystem::path folder(state.config.dump_program);
  const std::string who = strategies::dump_name(state.cluster);
  const fluid::Program& main = state.rewritten->main;
  strategies::dump_program(folder, who + ".origin_main", *state.origin_main);
  strategies::dump_program(folder, who + ".origin_startup", *state.origin_startup);
  strategies::dump_program(folder, who + ".main", main);
  strategies::dump_program(folder, who + ".startup", state.rewritten->startup);
  strategies::dump_job(
      folder, who,
      strategies::describe_job(state.cluster, std::max(1, main.distribution().trainers),
                               std::string(strategy.name()), strategy.transpiler_config().get()));
}

void Fleet::init_worker() {
  State& state = minimized("init_worker");
  if (!state.cluster.is_worker()) {
    refuse("this process is a server", "init_worker",
           "call run_server() when fleet::is_server() says so");
  }
  state.logger.info("fleet", "starting", {{"mode", mode()}, {"processes", processes()}});
  state.attend();
  state.rewritten->runtime->init_worker();
}

void Fleet::init_server(const std::string& model_dir) {
  State& state = minimized("init_server");
  if (!state.cluster.is_server()) {
    refuse("this process is a worker", "init_server", "call it when fleet::is_server() says so");
  }
  with_memory(state.cluster, [&] {
    state.server_executor = std::make_unique<fluid::Executor>(fluid::CPUPlace());
    state.server_executor->run(state.rewritten->startup);
    if (!model_dir.empty()) {
      fluid::io::load_slices(state.rewritten->startup, state.server_executor->scope(), model_dir);
    }
  });
}

int Fleet::run_server() {
  State& state = minimized("run_server");
  if (!state.server_executor) init_server();
  state.attend();
  with_memory(state.cluster, [&] { state.server_executor->run(state.rewritten->main); });
  state.server_executor.reset();
  state.status_reporter.reset();
  state.observer->set_table_progress({});  // which keeps the tables
  return 0;
}

void Fleet::stop_worker() {
  State& state = minimized("stop_worker");
  if (state.checkpoints) state.checkpoints->stop();
  state.saves = false;
  state.rewritten->runtime->stop_worker();
  state.stopped = true;
  state.status_reporter.reset();
}

void Fleet::barrier_worker() {
  minimized("barrier_worker").rewritten->runtime->barrier_worker();
}

std::vector<double> Fleet::all_reduce_worker(std::span<const double> values) {
  return minimized("all_reduce_worker").rewritten->runtime->all_reduce_worker(values);
}

const fluid::Program& Fleet::origin_program() const {
  return *minimized("origin_program").origin_main;
}
const fluid::Program& Fleet::origin_startup_program() const {
  return *minimized("origin_startup_program").origin_startup;
}
const fluid::Program& Fleet::main_program() const {
  return minimized("main_program").rewritten->main;
}
const fluid::Program& Fleet::startup_program() const {
  return minimized("startup_program").rewritten->startup;
}

void Fleet::save_persistables(fluid::Executor& exe, const std::string& dirname) {
  fluid::io::save_persistables(exe, dirname, minimized("save_persistables").rewritten->main);
}

void Fleet::load_persistables(fluid::Executor& exe, const std::string& dirname) {
  fluid::io::load_persistables(exe, dirname, minimized("load_persistables").rewritten->main);
}

uint64_t Fleet::end_pass(fluid::Executor& exe, const std::string& table,
                         const fluid::tables::PassRule& rule) {
  return minimized("end_pass").rewritten->runtime->end_pass(table, rule, exe.scope());
}

std::vector<std::filesystem::path> Fleet::save_table_delta(fluid::Executor& exe,
                                                           const std::string& table,
                                                           const std::filesystem::path& file) {
  strategies::StrategyRuntime& runtime = *minimized("save_table_delta").rewritten->runtime;
  exe.look_at_steps();
  if (runtime.keeps_tables()) return runtime.save_table_delta(table, file, exe.scope());
  fluid::io::save_table_delta(exe.scope(), table, file);
  return {file};
}

fluid::tables::TableStatistics Fleet::table_statistics(fluid::Executor& exe,
                                                       const std::string& table) {
  return minimized("table_statistics").rewritten->runtime->table_statistics(table, exe.scope());
}

void Fleet::save_inference_model(fluid::Executor& exe, const std::string& dirname,
                                 const std::vector<std::string>& feeds,
                                 const std::vector<fluid::Variable>& targets,
                                 const fluid::Program* main_program) {
  State& state = minimized("save_inference_model");
  if (!state.cluster.is_worker()) {
    refuse("this process is a server", "save_inference_model", "call it in the workers");
  }
  const fluid::Program& program = main_program != nullptr ? *main_program : *state.origin_main;
  fluid::io::save_inference_model(dirname, feeds, targets, exe, program, *state.rewritten->runtime);
}

CheckpointJob& Fleet::checkpoints(const char* caller) {
  State& state = minimized(caller);
  if (!state.cluster.is_worker()) {
    refuse("this process is a server", caller, "call it in the workers");
  }
  if (!state.checkpoints) {
    state.checkpoints = std::make_unique<CheckpointJob>(
        CheckpointJob::Job{.cluster = state.cluster,
                           .runtime = *state.rewritten->runtime,
                           .origin = *state.origin_main,
                           .main = state.rewritten->main,
                           .strategy = state.strategy_text,
                           .logger = state.logger,
                           .stop_worker = [this] { stop_worker(); }});
  }
  return *state.checkpoints;
}

TrainStatus Fleet::resume(fluid::Executor& exe, const CheckpointPolicy& policy) {
  TrainStatus status = checkpoints("resume").resume(exe, policy, state_->config.resume);
  state_->saves = !policy.folder.empty() && policy.on_signals;
  begin_at(status.step);
  return status;
}

// Tells the launcher.
void Fleet::begin_at(int64_t step) {
  state_->timer->begin_at(static_cast<uint64_t>(step));
  if (state_->status_reporter) state_->status_reporter->write_progress();
}

void Fleet::save_checkpoint(fluid::Executor& exe, const std::string& path,
                            const TrainStatus& status) {
  checkpoints("save_checkpoint").save(exe, path, status);
}

std::optional<TrainStatus> Fleet::load_checkpoint(fluid::Executor& exe, const std::string& path) {
  auto status = checkpoints("load_checkpoint").load(exe, path);
  if (status) begin_at(status->step);
  return status;
}

PaddleCheckPoints Fleet::check_points(const char* caller) {
  State& state = minimized(caller);
  if (!state.cluster.is_worker()) {
    refuse("this process is a server", caller, "call it in the workers");
  }
  return {*state.rewritten->runtime, *state.origin_main, is_first_worker()};
}

void Fleet::save_check_point(fluid::Executor& exe, const std::string& path,
                             const TrainStatus& status, bool remain_all_checkpoint) {
  PaddleCheckPoints check_points = this->check_points("save_check_point");
  TrainStatus now = status;
  if (now.step == 0) now.step = static_cast<int64_t>(exe.steps_run(main_program()));
  check_points.save(exe, path, now);
  if (!remain_all_checkpoint && is_first_worker()) clean_redundant_check_points(path);
}

std::optional<TrainStatus> Fleet::load_check_point(fluid::Executor& exe, const std::string& path,
                                                   bool ignore_empty) {
  auto status = check_points("load_check_point").load(exe, path);
  if (!status && !ignore_empty) {
    throw_error(ErrorCode::kInput, {.what = "there is no check point",
                                    .where = path,
                                    .expected = "a folder __paddle_fleet_checkpoint__.<number>",
                                    .got = "none",
                                    .fix = "name the folder that save_check_point was given"});
  }
  if (status && status->step > 0) {
    exe.set_steps_run(main_program(), static_cast<uint64_t>(status->step));
    begin_at(status->step);
  }
  return status;
}

void Fleet::clean_redundant_check_points(const std::string& root, int checkpoint_num) {
  remove_old_check_points(root, checkpoint_num);
}

std::string Fleet::to_string() const {
  const State& state = initialized("to_string");
  return str_cat("cluster\n", state.cluster.to_string(), "runtime\n", state.config.to_string(),
                 "strategy\n", state.strategy_text);
}

Fleet& default_fleet() {
  static Fleet fleet;
  return fleet;
}

}  // namespace fleet

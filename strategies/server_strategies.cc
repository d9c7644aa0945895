// The five strategies with parameter servers, which are one class behind their options.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/op_schema.h"
#include "strategies/async_strategy.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/server_job.h"
#include "strategies/jobs/transpiled.h"
#include "strategies/sync_strategy.h"

namespace fleet::strategies {
namespace {

// What the five say. `async.mode` is the mode of each; the rest of `async` is not the synchronous
// one's, the next three are its alone.
struct ServerStrategyOptions {
  const char* title = "";  // "AsyncStrategy"
  AsyncOptions async;
  int logical_shards = 0;
  int gradient_merge = 1;
  bool runtime_split_send_recv = false;
  bool slice_var_up = true;
  int min_block_size = 8192;
  int slices_per_server = 1;
  transpiler::SplitMethod split_method = "RoundRobin";
  bool paddle_schedules = false;
  TrainerRuntimeConfig trainer;
  ServerRuntimeConfig server;
};

bool synchronous(const ServerStrategyOptions& options) {
  return is_synchronous(options.async.mode);
}

void configure_mode(const ServerStrategyOptions& options,
                    transpiler::DistributeTranspilerConfig& config) {
  const AsyncOptions& async = options.async;
  if (synchronous(options) && !options.runtime_split_send_recv) return;
  config.sync_mode = false;
  config.runtime_split_send_recv = true;
  config.completely_not_async = synchronous(options);
  config.half_async = synchronous(options) || async.mode == ServerMode::kHalfAsync;
  if (sends_differences(async.mode)) {
    config.geo_sgd_mode = true;
    config.geo_sgd_need_push_nums = static_cast<int>(
        async.mode == ServerMode::kGeo ? async.geo_update_frequency : async.easgd_tau);
  }
}

transpiler::DistributeTranspilerConfig config_for(const ServerStrategyOptions& options) {
  transpiler::DistributeTranspilerConfig config;
  configure_mode(options, config);
  config.slice_var_up = options.slice_var_up;
  config.min_block_size = options.min_block_size;
  config.slices_per_server = options.slices_per_server;
  config.split_method = options.split_method;
  config.paddle_schedules = options.paddle_schedules;
  const DelayCompensationOptions& delay = options.async.delay_compensation;
  if (delay.form != DelayCompensation::kNone) {
    config.enable_dc_asgd = true;
    config.dc_asgd_form = std::string(to_string(delay.form));
    config.dc_asgd_lambda = delay.form == DelayCompensation::kPaddle ? 0 : delay.lambda;
    config.dc_asgd_m = delay.mean_square_decay;
    config.dc_asgd_epsilon = delay.epsilon;
  }
  return config;
}

// Merged gradients are added up for optimizers whose steps are linear in the gradient, so that one
// step with the sum is near to several with the parts; others take the mean.
bool linear_in_the_gradient(const fluid::Program& program) {
  const auto& ops = program.global_block().ops();
  return std::all_of(ops.begin(), ops.end(), [&program](const auto& op) {
    return op->input("Grad").empty() || !fluid::has_role(op->role, fluid::OpRole::kOptimize) ||
           fluid::update_schema_of(program, *op).linear_in_gradient;
  });
}

// A line for each option of the asynchronous modes that is not the transpiler's.
void add_asynchronous(const ServerStrategyOptions& options, OptionsText& text) {
  const AsyncOptions& async = options.async;
  const AsyncOptions none;
  const auto bound = [](const AsyncOptions& of) {
    return of.staleness_bound ? str_cat(*of.staleness_bound) : std::string("none");
  };
  if (async.mode == ServerMode::kAsync) text.add("staleness_bound", bound(async), bound(none));
  if (async.mode == ServerMode::kAsync || async.mode == ServerMode::kHalfAsync) {
    const auto& delay = async.delay_compensation;
    text.add("paddle_schedules", options.paddle_schedules, false);
    text.add("delay_compensation", to_string(delay.form), to_string(none.delay_compensation.form));
    if (delay.form != DelayCompensation::kNone) {
      const auto preset = DelayCompensationOptions::preset(delay.form);
      text.add("lambda", delay.lambda, preset.lambda)
          .add("mean_square_decay", delay.mean_square_decay, preset.mean_square_decay)
          .add("epsilon", delay.epsilon, preset.epsilon);
    }
  }
  if (async.mode == ServerMode::kGeo) {
    text.add("update_frequency", async.geo_update_frequency, none.geo_update_frequency);
  }
  if (async.mode == ServerMode::kEasgd) {
    text.add("tau", async.easgd_tau, none.easgd_tau)
        .add("alpha", async.easgd_alpha, none.easgd_alpha);
  }
}

class ServerStrategy final : public Strategy {
 public:
  explicit ServerStrategy(ServerStrategyOptions options) : options_(std::move(options)) {
    if (!synchronous(options_)) validate(options_.async);
    check_gradient_merge(options_.title, options_.gradient_merge, options_.logical_shards);
    transpiler::validate(config_for(options_));
  }

  std::string_view name() const override { return fluid::to_string(options_.async.mode); }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_servers(input, options_.title);
    const int shards =
        resolve_logical_shards(options_.logical_shards, input.cluster, options_.gradient_merge);
    auto programs = transpiled(input, config_for(options_), shards);
    const ServerJobConfigs config = resolve(input.config);
    ServerJob job = make_server_job(input, *this, shards, config);
    job.config.facts.emplace("placement", placement_fact(programs.main.distribution()));
    if (!synchronous(options_)) {
      job.options = configured(options_.async, config.trainer, input.config.cpu_num,
                               linear_in_the_gradient(input.main));
    }
    auto runtime = make_runtime(std::move(job), input.cluster.is_server(), input.main);
    return {std::move(programs.main), std::move(programs.startup), std::move(runtime)};
  }

  std::string to_string() const override {
    const ServerStrategyOptions defaults;
    OptionsText text;
    if (synchronous(options_)) {
      text.add("logical_shards", options_.logical_shards, defaults.logical_shards)
          .add("gradient_merge", options_.gradient_merge, defaults.gradient_merge)
          .add("runtime_split_send_recv", options_.runtime_split_send_recv,
               defaults.runtime_split_send_recv);
    }
    text.add("slice_var_up", options_.slice_var_up, defaults.slice_var_up)
        .add("min_block_size", options_.min_block_size, defaults.min_block_size)
        .add("slices_per_server", options_.slices_per_server, defaults.slices_per_server)
        .add("split_method", options_.split_method.name(), defaults.split_method.name());
    add_asynchronous(options_, text);
    return text.text();
  }
  std::string describe(const RuntimeConfig& config) const override {
    std::string text = to_string();
    if (!synchronous(options_)) {
      text += str_cat("  trainer threads = ", config.cpu_num, "  (CPU_NUM)\n");
    }
    return text + resolve(config).to_string();
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    return std::make_shared<transpiler::DistributeTranspilerConfig>(config_for(options_));
  }

 private:
  // Half-async merges one gradient of each thread, whatever is asked for.
  ServerJobConfigs resolve(const RuntimeConfig& config) const {
    ServerJobConfigs resolved(options_.trainer, options_.server, config);
    if (options_.async.mode == ServerMode::kHalfAsync) {
      TrainerRuntimeConfig& trainer = resolved.trainer;
      trainer.communicator_max_merge_var_num = config.cpu_num;
      trainer.communicator_send_queue_size = config.cpu_num;
      trainer.origins["communicator_max_merge_var_num"] = "CPU_NUM, always with half_async";
      trainer.origins["communicator_send_queue_size"] = "CPU_NUM, always with half_async";
    }
    return resolved;
  }

  ServerStrategyOptions options_;
};

template <class Options>
ServerStrategyOptions common(const char* title, ServerMode mode, const Options& options) {
  ServerStrategyOptions made;
  made.title = title;
  made.async.mode = mode;
  made.slice_var_up = options.slice_var_up;
  made.min_block_size = options.min_block_size;
  made.slices_per_server = options.slices_per_server;
  made.split_method = options.split_method;
  made.trainer = options.trainer_runtime_config;
  made.server = options.server_runtime_config;
  return made;
}

// Of AsyncStrategy and HalfAsyncStrategy.
template <class Options>
void take_delays(const Options& options, ServerStrategyOptions& made) {
  made.paddle_schedules = options.paddle_schedules;
  made.async.delay_compensation = options.delay_compensation;
  if (options.enable_dc_asgd && options.delay_compensation.form == DelayCompensation::kNone) {
    made.async.delay_compensation = DelayCompensationOptions::preset(DelayCompensation::kClipped);
  }
}

[[noreturn]] void refuse_without_delay(const char* option, const char* reason) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat("staleness_bound and ", option, " contradict each other"),
               .where = "AsyncStrategy",
               .expected = "at most one of them",
               .got = str_cat("staleness_bound = 0, and ", reason),
               .fix = "leave one out"});
}

uint32_t count_of(int value, const char* title, const char* field) {
  if (value >= 1) return static_cast<uint32_t>(value);
  throw_error(ErrorCode::kInvalidArgument, {.what = "workers exchange after at least one step",
                                            .where = str_cat(title, ".", field),
                                            .expected = "1 or more",
                                            .got = str_cat(value),
                                            .fix = str_cat("raise ", field)});
}

}  // namespace

std::shared_ptr<const Strategy> SyncStrategy::make() const {
  auto made = common("SyncStrategy", ServerMode::kSync, *this);
  made.logical_shards = logical_shards;
  made.gradient_merge = gradient_merge;
  made.runtime_split_send_recv = runtime_split_send_recv;
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> AsyncStrategy::make() const {
  auto made = common("AsyncStrategy", ServerMode::kAsync, *this);
  take_delays(*this, made);
  if (staleness_bound == 0u) {
    if (made.async.delay_compensation.form != DelayCompensation::kNone) {
      refuse_without_delay("delay compensation", "gradients without delay have none to compensate");
    }
    if (paddle_schedules) {
      refuse_without_delay("paddle_schedules", "in synchronous training schedules count steps");
    }
    SyncStrategy sync{.slice_var_up = slice_var_up,
                      .min_block_size = min_block_size,
                      .slices_per_server = slices_per_server,
                      .split_method = split_method,
                      .trainer_runtime_config = trainer_runtime_config,
                      .server_runtime_config = server_runtime_config};
    return sync.make();
  }
  made.async.staleness_bound = staleness_bound;
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> HalfAsyncStrategy::make() const {
  auto made = common("HalfAsyncStrategy", ServerMode::kHalfAsync, *this);
  take_delays(*this, made);
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> GeoStrategy::make() const {
  auto made = common("GeoStrategy", ServerMode::kGeo, *this);
  made.async.geo_update_frequency = count_of(update_frequency, "GeoStrategy", "update_frequency");
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> EasgdStrategy::make() const {
  auto made = common("EasgdStrategy", ServerMode::kEasgd, *this);
  made.async.easgd_tau = count_of(tau, "EasgdStrategy", "tau");
  made.async.easgd_alpha = alpha;
  return std::make_shared<ServerStrategy>(std::move(made));
}

}  // namespace fleet::strategies

#include "strategies/async_strategy.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/op_schema.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/server_job.h"
#include "strategies/jobs/transpiled.h"
#include "strategies/sync_strategy.h"

namespace fleet::strategies {
namespace {

// What the four have in common.
struct ServerModeOptions {
  const char* title = "";  // "AsyncStrategy"
  AsyncOptions async;
  bool slice_var_up = true;
  int min_block_size = 8192;
  int slices_per_server = 1;
  transpiler::SplitMethod split_method = "RoundRobin";
  bool paddle_schedules = false;
  TrainerRuntimeConfig trainer;
  ServerRuntimeConfig server;
};

transpiler::DistributeTranspilerConfig config_for(const ServerModeOptions& options) {
  transpiler::DistributeTranspilerConfig config;
  config.sync_mode = false;
  config.runtime_split_send_recv = true;
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
  if (options.async.mode == ServerMode::kHalfAsync) config.half_async = true;
  if (sends_differences(options.async.mode)) {
    config.geo_sgd_mode = true;
    config.geo_sgd_need_push_nums =
        static_cast<int>(options.async.mode == ServerMode::kGeo ? options.async.geo_update_frequency
                                                                : options.async.easgd_tau);
  }
  return config;
}

// Merged gradients are added up for optimizers whose steps are linear in the gradient, so that one
// step with the sum is near to several with the parts; others take the mean.
bool linear_in_the_gradient(const fluid::Program& program) {
  const auto& ops = program.global_block().ops();
  return std::all_of(ops.begin(), ops.end(), [&program](const auto& op) {
    return op->input("Grad").empty() || !fluid::has_role(op->role, fluid::OpRole::kOptimize) ||
           fluid::schema_of(program, *op).linear_in_gradient;
  });
}

class ServerStrategy final : public Strategy {
 public:
  explicit ServerStrategy(ServerModeOptions options) : options_(std::move(options)) {
    validate(options_.async);
    transpiler::validate(config_for(options_));
  }

  std::string_view name() const override { return fluid::to_string(options_.async.mode); }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_servers(input, options_.title);
    const int workers = input.cluster.worker_num;
    auto programs = transpiled(input, config_for(options_), workers);
    const ServerModeConfig config = resolve(input.config);
    ServerJob job = make_server_job(input, *this, workers, config);
    job.config.facts.emplace("placement", placement_fact(programs.main.distribution()));
    job.async = configured(options_.async, config.trainer, input.config.cpu_num,
                           linear_in_the_gradient(input.main));
    auto runtime = make_runtime(std::move(job), input.cluster.is_server(), input.main);
    return {std::move(programs.main), std::move(programs.startup), std::move(runtime)};
  }

  std::string to_string() const override {
    const AsyncOptions& async = options_.async;
    const AsyncOptions none;
    OptionsText text;
    text.add("slice_var_up", options_.slice_var_up, true)
        .add("min_block_size", options_.min_block_size, 8192)
        .add("slices_per_server", options_.slices_per_server, 1)
        .add("split_method", options_.split_method.name(), std::string("RoundRobin"));
    const auto bound = [](const AsyncOptions& options) {
      return options.staleness_bound ? str_cat(*options.staleness_bound) : std::string("none");
    };
    if (async.mode == ServerMode::kAsync) text.add("staleness_bound", bound(async), bound(none));
    if (async.mode == ServerMode::kAsync || async.mode == ServerMode::kHalfAsync) {
      const auto& delay = async.delay_compensation;
      text.add("paddle_schedules", options_.paddle_schedules, false);
      text.add("delay_compensation", strategies::to_string(delay.form),
               strategies::to_string(none.delay_compensation.form));
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
    return text.text();
  }
  std::string describe(const RuntimeConfig& config) const override {
    return str_cat(to_string(), "  trainer threads = ", config.cpu_num, "  (CPU_NUM)\n",
                   resolve(config).to_string());
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    return std::make_shared<transpiler::DistributeTranspilerConfig>(config_for(options_));
  }

 private:
  // Half-async merges one gradient of each thread, whatever is asked for.
  ServerModeConfig resolve(const RuntimeConfig& config) const {
    ServerModeConfig resolved(options_.trainer, options_.server, config);
    if (options_.async.mode == ServerMode::kHalfAsync) {
      TrainerRuntimeConfig& trainer = resolved.trainer;
      trainer.communicator_max_merge_var_num = config.cpu_num;
      trainer.communicator_send_queue_size = config.cpu_num;
      trainer.origins["communicator_max_merge_var_num"] = "CPU_NUM, always with half_async";
      trainer.origins["communicator_send_queue_size"] = "CPU_NUM, always with half_async";
    }
    return resolved;
  }

  ServerModeOptions options_;
};

template <class Options>
ServerModeOptions common(const char* title, ServerMode mode, const Options& options) {
  ServerModeOptions made;
  made.title = title;
  made.async.mode = mode;
  made.trainer = options.trainer_runtime_config;
  made.server = options.server_runtime_config;
  return made;
}

template <class Options>
void take_slicing(const Options& options, ServerModeOptions& made) {
  made.slice_var_up = options.slice_var_up;
  made.min_block_size = options.min_block_size;
  made.slices_per_server = options.slices_per_server;
  made.split_method = options.split_method;
}

template <class Options>
void take_common_fields(const Options& options, ServerModeOptions& made) {
  take_slicing(options, made);
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

std::shared_ptr<const Strategy> AsyncStrategy::make() const {
  auto made = common("AsyncStrategy", ServerMode::kAsync, *this);
  take_common_fields(*this, made);
  if (staleness_bound == 0u) {
    if (made.async.delay_compensation.form != DelayCompensation::kNone) {
      refuse_without_delay("delay compensation", "gradients without delay have none to compensate");
    }
    if (paddle_schedules) {
      refuse_without_delay("paddle_schedules", "in synchronous training schedules count steps");
    }
    SyncStrategy sync;
    sync.slice_var_up = slice_var_up;
    sync.min_block_size = min_block_size;
    sync.slices_per_server = slices_per_server;
    sync.split_method = split_method;
    sync.trainer_runtime_config = trainer_runtime_config;
    sync.server_runtime_config = server_runtime_config;
    return sync.make();
  }
  made.async.staleness_bound = staleness_bound;
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> HalfAsyncStrategy::make() const {
  auto made = common("HalfAsyncStrategy", ServerMode::kHalfAsync, *this);
  take_common_fields(*this, made);
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> GeoStrategy::make() const {
  auto made = common("GeoStrategy", ServerMode::kGeo, *this);
  take_slicing(*this, made);
  made.async.geo_update_frequency = count_of(update_frequency, "GeoStrategy", "update_frequency");
  return std::make_shared<ServerStrategy>(std::move(made));
}

std::shared_ptr<const Strategy> EasgdStrategy::make() const {
  auto made = common("EasgdStrategy", ServerMode::kEasgd, *this);
  take_slicing(*this, made);
  made.async.easgd_tau = count_of(tau, "EasgdStrategy", "tau");
  made.async.easgd_alpha = alpha;
  return std::make_shared<ServerStrategy>(std::move(made));
}

}  // namespace fleet::strategies

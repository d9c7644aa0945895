#include <memory>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/async_strategy.h"
#include "strategies/collective_strategy.h"
#include "strategies/config/options_text.h"
#include "strategies/forwarding.h"
#include "strategies/strategy.h"
#include "strategies/sync_strategy.h"
#include "transpiler/config.h"

namespace fleet::strategies {
namespace {

template <class Options>
void take_slicing(const transpiler::DistributeTranspilerConfig& config, Options& options) {
  options.slice_var_up = config.slice_var_up;
  options.split_method = config.split_method;
  options.min_block_size = config.min_block_size;
  options.slices_per_server = config.slices_per_server;
}

// What only servers without a common step have; DC-ASGD as the transpiler would do it.
template <class Options>
void take_asynchronous(const transpiler::DistributeTranspilerConfig& config, Options& options) {
  options.paddle_schedules = config.paddle_schedules;
  if (!config.enable_dc_asgd) return;
  const transpiler::DcAsgdForm form = transpiler::dc_asgd_form(config);
  options.delay_compensation = {.form = parse_delay_compensation(form.name).value(),
                                .lambda = form.lambda,
                                .mean_square_decay = form.m,
                                .epsilon = form.epsilon};
}

// A field that no strategy has.
void refuse(bool set, const char* field, const char* strategy) {
  if (!set) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = str_cat(strategy, " has no ", field),
               .where = str_cat("DistributedStrategy, DistributeTranspilerConfig.", field),
               .expected = "its default",
               .got = "another value",
               .fix = str_cat("leave ", field, " out, or use DistributeTranspiler itself")});
}

// A strategy that tells the log of the first worker what it transpiles.
class Printing final : public ForwardingStrategy {
 public:
  using ForwardingStrategy::ForwardingStrategy;

  std::string_view name() const override { return inner().name(); }
  StrategyResult rewrite(const StrategyInput& input) const override {
    StrategyInput told = input;
    told.print_log = input.cluster.is_worker() && input.cluster.index == 0;
    return inner().rewrite(told);
  }
  std::string describe(const RuntimeConfig& config) const override {
    return inner().describe(config) + OptionsText().add("print_log", true, false).text();
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    auto config = *inner().transpiler_config();
    config.print_log = true;
    return std::make_shared<transpiler::DistributeTranspilerConfig>(std::move(config));
  }
};

}  // namespace

DistributedStrategy::DistributedStrategy(const transpiler::DistributeTranspilerConfig& config) {
  transpiler::validate(config);
  refuse(!config.whole_norms, "whole_norms", "a strategy");
  refuse(!config.server_statistics, "server_statistics", "a strategy");
  refuse(!config.prefetch_trees, "prefetch_trees", "a strategy");
  refuse(!config.initialise_frozen_tables, "initialise_frozen_tables", "a strategy");
  refuse(!config.wait_port, "wait_port", "a strategy");
  refuse(config.paddle_schedules && config.completely_not_async, "paddle_schedules",
         "SyncStrategy");
  refuse(config.fuse_all_reduce_bytes != 0, "fuse_all_reduce_bytes", "GradAllReduceStrategy");
  const fluid::ServerMode mode = server_mode(config);
  if (config.mode != "pserver") {
    collective::DistributedStrategy collective;
    collective.mode = config.mode;
    collective.collective_mode = config.collective_mode;
    collective.nccl_comm_num = config.nccl_comm_num;
    collective.use_hierarchical_allreduce = config.use_hierarchical_allreduce;
    collective.hierarchical_allreduce_inter_nranks = config.hierarchical_allreduce_inter_nranks;
    strategy_ = collective.make();
  } else if (is_synchronous(mode)) {
    SyncStrategy sync;
    take_slicing(config, sync);
    sync.runtime_split_send_recv = config.completely_not_async;
    strategy_ = sync.make();
  } else if (mode == fluid::ServerMode::kGeo) {
    GeoStrategy geo{.update_frequency = config.geo_sgd_need_push_nums};
    take_slicing(config, geo);
    strategy_ = geo.make();
  } else if (mode == fluid::ServerMode::kHalfAsync || !config.runtime_split_send_recv) {
    HalfAsyncStrategy half;
    take_slicing(config, half);
    take_asynchronous(config, half);
    strategy_ = half.make();
  } else {
    AsyncStrategy async;
    take_slicing(config, async);
    take_asynchronous(config, async);
    strategy_ = async.make();
  }
  if (config.print_log) strategy_ = std::make_shared<Printing>(std::move(strategy_));
}

}  // namespace fleet::strategies

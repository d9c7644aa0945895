#include "strategies/async_strategy.h"
#include "strategies/collective_strategy.h"
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

}  // namespace

DistributedStrategy::DistributedStrategy(const transpiler::DistributeTranspilerConfig& config) {
  transpiler::validate(config);
  if (config.mode != "pserver") {
    collective::DistributedStrategy collective;
    collective.mode = config.mode;
    collective.collective_mode = config.collective_mode;
    collective.nccl_comm_num = config.nccl_comm_num;
    collective.use_hierarchical_allreduce = config.use_hierarchical_allreduce;
    collective.hierarchical_allreduce_inter_nranks = config.hierarchical_allreduce_inter_nranks;
    strategy_ = collective.make();
  } else if (config.sync_mode || config.completely_not_async) {
    SyncStrategy sync;
    take_slicing(config, sync);
    sync.runtime_split_send_recv = config.completely_not_async;
    strategy_ = sync.make();
  } else if (config.geo_sgd_mode) {
    strategy_ = GeoStrategy{.update_frequency = config.geo_sgd_need_push_nums}.make();
  } else if (config.half_async || !config.runtime_split_send_recv) {
    HalfAsyncStrategy half;
    take_slicing(config, half);
    half.enable_dc_asgd = config.enable_dc_asgd;
    strategy_ = half.make();
  } else {
    AsyncStrategy async;
    take_slicing(config, async);
    async.enable_dc_asgd = config.enable_dc_asgd;
    strategy_ = async.make();
  }
}

}  // namespace fleet::strategies

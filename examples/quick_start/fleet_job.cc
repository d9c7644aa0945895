#include "examples/quick_start/fleet_job.h"

namespace quick_start {

std::unique_ptr<role_maker::RoleMakerBase> make_role_maker(const Options& options) {
  if (options.role_maker == "mpi_symetric") {
    return std::make_unique<role_maker::MPISymetricRoleMaker>();
  }
  return std::make_unique<role_maker::PaddleCloudRoleMaker>();
}

strategies::DistributedStrategy make_strategy(const Options& options) {
  constexpr uint32_t kStalenessBound = 3;
  constexpr int kLocalSteps = 8;
  const bool collective = fleet::mode() == "collective";
  if (fleet::mode() == "local") return strategies::LocalStrategy{.logical_shards = options.shards};
  const std::string name =
      options.strategy != "default" ? options.strategy : (collective ? "all_reduce" : "sync");
  if (name == "sync") return strategies::SyncStrategy{.logical_shards = options.shards};
  if (name == "async") return strategies::AsyncStrategy{};
  if (name == "half_async") return strategies::HalfAsyncStrategy{};
  if (name == "ssp") return strategies::AsyncStrategy{.staleness_bound = kStalenessBound};
  if (name == "dc_asgd") {
    return strategies::AsyncStrategy{
        .delay_compensation =
            strategies::DelayCompensationOptions::preset(strategies::DelayCompensation::kClipped)};
  }
  if (name == "geo") return strategies::GeoStrategy{};
  if (name == "easgd") return strategies::EasgdStrategy{};
  if (name == "local_sgd") return strategies::LocalSgdStrategy{{.interval = kLocalSteps}};
  return strategies::GradAllReduceStrategy{.logical_shards = options.shards};
}

Job fleet_job() {
  return {.mode = fleet::mode(),
          .processes = fleet::processes(),
          .workers = fleet::worker_num(),
          .reports = fleet::is_first_worker(),
          .saves = true,
          .sum_over_workers = [](const std::vector<double>& values) {
            return fleet::all_reduce_worker(values);
          }};
}

}  // namespace quick_start

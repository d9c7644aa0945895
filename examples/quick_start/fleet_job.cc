#include "examples/quick_start/fleet_job.h"

namespace quick_start {

std::unique_ptr<role_maker::RoleMakerBase> make_role_maker(const Options& options) {
  if (options.role_maker == "mpi_symetric") {
    return std::make_unique<role_maker::MPISymetricRoleMaker>();
  }
  return std::make_unique<role_maker::PaddleCloudRoleMaker>();
}

Job fleet_job() {
  return {.mode = fleet::mode(),
          .processes = fleet::processes(),
          .workers = fleet::worker_num(),
          .reports = fleet::is_first_worker(),
          .sum_over_workers = [](const std::vector<double>& values) {
            return fleet::all_reduce_worker(values);
          }};
}

}  // namespace quick_start

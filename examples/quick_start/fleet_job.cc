#include "examples/quick_start/role_maker_choice.h"

namespace quick_start {

std::unique_ptr<role_maker::RoleMakerBase> make_role_maker(const Options& options) {
  if (options.role_maker == "mpi_symetric") {
    return std::make_unique<role_maker::MPISymetricRoleMaker>();
  }
  return std::make_unique<role_maker::PaddleCloudRoleMaker>();
}

}  // namespace quick_start

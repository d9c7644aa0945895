// Whether all ranks begin with the same parameters: ranks that load different files, or run other
// startup programs, would train apart without an error.
#pragma once

#include <string>
#include <vector>

#include "fluid/core/tensor.h"
#include "strategies/collective/gradient_reducer.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

struct NamedParameter {
  std::string name;
  const fluid::Tensor* value = nullptr;
};

// All ranks call it at the same place, with the same parameters in one order; a rank that trains
// nothing gives none, and is not compared. Reads every byte of them once. Throws UsageError at
// every rank that names a parameter and the ranks that differ; PeerError when a rank does not come.
void require_same_parameters(const std::vector<NamedParameter>& parameters,
                             transport::CollectiveCommunicator& communicator,
                             const GradientReducerOptions& options);

}  // namespace fleet::strategies

// What servers that compensate delays keep of each trainer: every slice as it received it last.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/ops/distributed/server_program.h"
#include "strategies/parameter_server/server/server_lanes.h"

namespace fleet::strategies {

// One thread at a time; the scope must outlive it.
class TrainerBackups {
 public:
  // `slices` in the parameter index's order, whose values the scope has: every trainer has seen
  // them.
  TrainerBackups(const std::vector<fluid::ServerSlice>& slices, fluid::Scope& scope);

  // Has the model tell of what trainers receive and send, where delays are compensated.
  void watch(ServerModel& model);

 private:
  struct Backup {
    std::vector<fluid::Tensor*> trainers;
    std::vector<bool> own;  // by trainer: the tensor is no version of the slice, but one of rows
  };

  void note_value(uint32_t worker, uint32_t slice, const fluid::Tensor& value);
  void note_rows(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                 const fluid::Tensor& value);

  std::vector<Backup> backups_;          // by slice
  fluid::Tensor* trainer_id_ = nullptr;  // whose gradient is applied; null: no delay is compensated
};

}  // namespace fleet::strategies

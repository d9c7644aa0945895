#include "strategies/parameter_server/server/trainer_backups.h"

#include <cstring>

#include "fluid/ops/distributed/names.h"

namespace fleet::strategies {

TrainerBackups::TrainerBackups(const std::vector<fluid::ServerSlice>& slices, fluid::Scope& scope) {
  for (const fluid::ServerSlice& slice : slices) {
    Backup& backup = backups_.emplace_back();
    for (const auto& name : slice.backups) {
      backup.trainers.push_back(&scope.var(name).emplace<fluid::Tensor>(scope.tensor(slice.value)));
    }
    backup.own.resize(slice.backups.size(), false);
    if (slice.backups.empty() || trainer_id_ != nullptr) continue;
    trainer_id_ =
        &scope.var(fluid::kTrainerId).emplace<fluid::Tensor>(fluid::Tensor::scalar<int64_t>(0));
  }
}

void TrainerBackups::watch(ServerModel& model) {
  if (trainer_id_ == nullptr) return;
  // The formula is computed by the op dc_compensate of the slice's update block
  // (fluid/ops/distributed/server_ops.h), that of the form "paddle" by plain ops. With the gradient
  // g, d = the slice as it is - the sender's backup, and MS the mean of squares of g:
  //   constant  g + lambda g g d
  //   adaptive  g + lambda g g d / sqrt(MS + epsilon)
  //   clipped   g + g clip(lambda g d / sqrt(MS + epsilon), -1, 1)
  // The block finds the backup by the trainer's number, which is set before each update.
  model.on_value = [this](uint32_t worker, uint32_t slice, const fluid::Tensor& value) {
    note_value(worker, slice, value);
  };
  model.on_rows = [this](uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                         const fluid::Tensor& value) { note_rows(worker, slice, rows, value); };
  model.on_sender = [this](uint32_t worker) {
    *trainer_id_->data<int64_t>() = static_cast<int64_t>(worker);
  };
}

void TrainerBackups::note_value(uint32_t worker, uint32_t slice, const fluid::Tensor& value) {
  // The backup shares the memory of the version that was sent: the slice's next update goes on
  // elsewhere as long as a backup has it.
  Backup& backup = backups_[slice];
  if (backup.trainers.empty()) return;
  *backup.trainers[worker] = value;
  backup.own[worker] = false;
}

// The other rows stay as the trainer saw them.
void TrainerBackups::note_rows(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                               const fluid::Tensor& value) {
  Backup& backup = backups_[slice];
  if (backup.trainers.empty() || rows.empty()) return;
  fluid::Tensor& seen = *backup.trainers[worker];
  if (!backup.own[worker]) seen = seen.clone();
  backup.own[worker] = true;
  const uint64_t row_bytes = value.bytes() / static_cast<uint64_t>(value.shape()[0]);
  for (const int64_t row : rows) {
    const uint64_t at = static_cast<uint64_t>(row) * row_bytes;
    std::memcpy(seen.raw() + at, value.raw() + at, row_bytes);
  }
}

}  // namespace fleet::strategies

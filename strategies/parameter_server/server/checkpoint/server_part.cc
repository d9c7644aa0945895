#include "strategies/parameter_server/server/checkpoint/server_part.h"

#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {

void add_to_part(const ParameterEntry& entry, const fluid::Tensor& value, ServerPart& part) {
  if (entry.is_whole()) {
    part.tensors.emplace(entry.origin, value);
    return;
  }
  const uint64_t row_bytes = entry.row_bytes();
  const auto rows =
      row_bytes == 0 ? int64_t{0} : static_cast<int64_t>(entry.bytes_in_origin() / row_bytes);
  // Servers may call their slices the same.
  const std::string name = str_cat(entry.origin, "/rows-from-", entry.first_row());
  part.tensors.emplace(name, value.rows(0, rows));
  part.rows.emplace(name, fluid::io::CheckpointRows{.of = entry.origin,
                                                    .shape = fluid::Shape(entry.origin_shape),
                                                    .first = entry.first_row(),
                                                    .stride = entry.row_stride});
}

std::string ServerPartWriter::refusal(PartOrder& order) const {
  if (order.part < 0 || order.part >= order.parts) {
    return str_cat("there is no part ", order.part, " of ", order.parts);
  }
  const Status allowed =
      outcome_of([&] { order.folder = folders_.folder_at(order.folder).string(); });
  if (!allowed.ok()) return allowed.to_string();
  if (fluid::io::is_checkpoint_begun(order.folder, files_)) return {};
  return str_cat("it sees no checkpoint that was begun in ", order.folder);
}

void ServerPartWriter::start(const PartOrder& order, ServerPart part) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({order, std::move(part)});
    if (std::exchange(writes_, true)) return;
  }
  background_->start([this] { write_all(); });
}

void ServerPartWriter::write_all() {
  while (true) {
    Work work;
    {
      const std::lock_guard lock(mutex_);
      writes_ = !waiting_.empty();
      if (!writes_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    write(work);
  }
}

void ServerPartWriter::write(const Work& work) const {
  const PartOrder& order = work.order;
  const Status status = outcome_of([&] {
    fluid::io::write_checkpoint_part(order.folder, order.part, order.parts, work.part.tensors,
                                     files_, work.part.rows);
  });
  if (status.ok()) return;
  logger_.warning("checkpoint", "this server's part cannot be written",
                  {{"folder", order.folder}, {"why", status.to_string()}});
  fluid::io::give_up_checkpoint_part(order.folder, order.part, order.parts, status.to_string(),
                                     files_);
}

}  // namespace fleet::strategies

#include "strategies/parameter_server/server/checkpoint/server_part.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {
namespace {

using fluid::io::CheckpointReader;

void check_shape(const CheckpointReader& checkpoint, const ParameterEntry& entry) {
  const auto& found = checkpoint.tensors().at(entry.origin);
  const fluid::Shape shape(entry.origin_shape);
  if (found.dtype == entry.dtype && found.shape == shape) return;
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "a variable of the checkpoint has another type or shape",
               .where = "variable '" + entry.origin + "'",
               .expected = str_cat(fluid::dtype_name(entry.dtype), shape),
               .got = str_cat(fluid::dtype_name(found.dtype), found.shape),
               .fix = "load a checkpoint of the same program"});
}

}  // namespace

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

CheckpointReader open_source(const PartSource& source, const SaveFolders& folders,
                             FileSystem& files) {
  auto checkpoint = CheckpointReader::open(folders.folder_at(source.folder), files).value();
  if (checkpoint.checksum() == source.checksum) return checkpoint;
  throw_error(ErrorCode::kInput, {.what = "a server sees another checkpoint than the workers",
                                  .where = source.folder,
                                  .expected = str_cat("checksum ", source.checksum),
                                  .got = str_cat(checkpoint.checksum()),
                                  .fix = "give a folder on a file system that all share"});
}

void check_values(const CheckpointReader& checkpoint, const std::vector<ParameterEntry>& entries) {
  for (const ParameterEntry& entry : entries) {
    if (entry.growing) checkpoint.check_table(entry.origin).throw_if_error();
    if (entry.growing || !checkpoint.tensors().contains(entry.origin)) continue;
    check_shape(checkpoint, entry);
    const Status status = entry.is_whole()
                              ? checkpoint.check(entry.origin)
                              : checkpoint.check_rows(entry.origin, entry.first_row(),
                                                      entry.row_stride, entry.height());
    status.throw_if_error();
  }
}

void read_values(const CheckpointReader& checkpoint, const std::vector<ParameterEntry>& entries,
                 const std::function<fluid::Tensor&(uint32_t)>& memory) {
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const ParameterEntry& entry = entries[i];
    if (entry.growing || !checkpoint.tensors().contains(entry.origin)) continue;
    check_shape(checkpoint, entry);
    const Status status = entry.is_whole()
                              ? checkpoint.read_into(entry.origin, memory(i))
                              : checkpoint.read_rows_into(entry.origin, entry.first_row(),
                                                          entry.row_stride, memory(i));
    status.throw_if_error();
  }
}

void check_table_form(const CheckpointReader& checkpoint, const std::string& name,
                      const fluid::tables::SharedTable& table, FileSystem& files) {
  const auto found = checkpoint.tables().find(name);
  if (found == checkpoint.tables().end()) checkpoint.check_table(name).throw_if_error();
  table.reading([&](const fluid::tables::GrowingTable& rows) {
    for (const auto& file : found->second) {
      const fluid::tables::RowConversion fits(fluid::tables::TableFileReader(file, files),
                                              rows.options());
    }
  });
}

void read_table(const CheckpointReader& checkpoint, const std::string& name,
                fluid::tables::SharedTable& table, const fluid::tables::BucketFilter& mine,
                FileSystem& files) {
  const auto found = checkpoint.tables().find(name);
  if (found == checkpoint.tables().end()) checkpoint.check_table(name).throw_if_error();
  table.alone([&](fluid::tables::GrowingTable& rows) {
    return fluid::tables::load_table(rows, found->second, mine, files);
  });
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
                                     files_, work.part.rows, work.part.tables);
  });
  if (status.ok()) return;
  logger_.warning("checkpoint", "this server's part cannot be written",
                  {{"folder", order.folder}, {"why", status.to_string()}});
  fluid::io::give_up_checkpoint_part(order.folder, order.part, order.parts, status.to_string(),
                                     files_, work.part.tables);
}

}  // namespace fleet::strategies

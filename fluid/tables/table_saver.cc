#include "fluid/tables/table_saver.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace fleet::fluid::tables {
namespace {

void throw_if(const std::error_code& error, const char* what, const std::filesystem::path& path) {
  if (!error) return;
  throw_error(ErrorCode::kInput, {.what = what,
                                  .where = str_cat("file ", path.string()),
                                  .expected = "a path that this user may write, with room",
                                  .got = error.message(),
                                  .fix = "check the path, its permissions and the free space"});
}

TableFileInfo info_of(const GrowingTable& table, const TableSaveOptions& options) {
  TableFileInfo info;
  info.delta = options.delta;
  info.part = options.part;
  info.parts = options.parts;
  info.clock = table.clock();
  info.delta_number = table.delta_number() + (options.delta ? 1 : 0);
  info.seed = table.options().seed;
  info.table = table.options().name;
  info.width = table.options().width;
  info.fields = table.options().fields;
  if (options.states) info.states = table.options().states;
  return info;
}

void check(const GrowingTable& table, const TableSaveOptions& options) {
  if (options.part >= options.parts) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a table's file has no place among its parts",
                 .where = str_cat("growing table '", table.options().name, "'"),
                 .expected = str_cat("a part from 0 to ", options.parts, " - 1"),
                 .got = str_cat("part ", options.part),
                 .fix = "number the servers' files from 0 on"});
  }
  if (!options.delta || table.options().deltas) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "a table that keeps no account of changes cannot write a delta",
               .where = str_cat("growing table '", table.options().name, "'"),
               .expected = "TableOptions::deltas",
               .got = "a table without",
               .fix = "set options.deltas when the table is made"});
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}  // namespace

TableSaver::TableSaver(GrowingTable& table, const std::filesystem::path& file,
                       const TableSaveOptions& options, FileSystem& files)
    : table_(table),
      files_(files),
      info_((check(table, options), info_of(table, options))),
      piece_bytes_(std::max<size_t>(1, options.piece_bytes)) {
  if (!file.empty()) open(file);
  waiting_ = std::make_unique<RowSnapshot>(*table.waiting_, RowSnapshot::Which::kAll);
  if (info_.delta) take_gone();
  rows_ = std::make_unique<RowSnapshot>(
      *table.rows_, info_.delta ? RowSnapshot::Which::kTouched : RowSnapshot::Which::kAll);
}

TableSaver::~TableSaver() {
  if (file_ != nullptr) {
    const std::filesystem::path name = file_->path();
    file_.reset();
    static_cast<void>(files_.remove(name));
  }
  if (!info_.delta || rows_ == nullptr) return;
  if (committed_) {
    table_.delta_number_ = info_.delta_number;
    return;
  }
  table_.rows_->mark_all_touched();
  table_.gone_.insert(table_.gone_.end(), gone_.begin(), gone_.end());
}

void TableSaver::open(const std::filesystem::path& file) {
  path_ = file;
  std::error_code error;
  file_ = files_.create(folder_of(path_) / ("." + path_.filename().string() + "."), error);
  throw_if(error, "a table's file cannot be made", path_);
  append(encode_table_header(info_));
}

void TableSaver::take_gone() {
  gone_ = std::move(table_.gone_);
  table_.gone_.clear();
  const auto order = [](uint64_t key) { return std::tuple(bucket_of(key), key); };
  std::sort(gone_.begin(), gone_.end(),
            [&](uint64_t a, uint64_t b) { return order(a) < order(b); });
  gone_.erase(std::unique(gone_.begin(), gone_.end()), gone_.end());
  std::erase_if(gone_, [&](uint64_t key) { return table_.contains(key); });
}

bool TableSaver::collect() {
  body_.clear();
  waiting_body_.clear();
  head_ = {};
  head_.number = totals_.number;
  head_.first = rows_->bucket();
  while (rows_->bucket() < kBuckets && body_.size() + waiting_body_.size() < piece_bytes_) {
    head_.rows += rows_->next_bucket(body_);
    // Deltas are of rows: ids that wait for one are the writer's own affair.
    if (!info_.delta) head_.waiting += waiting_->next_bucket(waiting_body_);
  }
  head_.end = rows_->bucket();
  if (head_.end == head_.first) return false;
  drop_states();
  body_.insert(body_.end(), waiting_body_.begin(), waiting_body_.end());
  while (next_gone_ < gone_.size() && bucket_of(gone_[next_gone_]) < head_.end) {
    const auto* const key = reinterpret_cast<const std::byte*>(&gone_[next_gone_++]);
    body_.insert(body_.end(), key, key + sizeof(uint64_t));
    ++head_.gone;
  }
  ++totals_.number;
  totals_.rows += head_.rows;
  totals_.waiting += head_.waiting;
  totals_.gone += head_.gone;
  return true;
}

// Those that the file is not to have, at the end of each row.
void TableSaver::drop_states() {
  const size_t from = sizeof(uint64_t) + table_.layout().bytes();
  const size_t to = sizeof(uint64_t) + info_.layout().bytes();
  if (from == to) return;
  for (size_t row = 0; row < head_.rows; ++row) {
    std::memmove(body_.data() + row * to, body_.data() + row * from, to);
  }
  body_.resize(head_.rows * to);
}

void TableSaver::write() {
  head_.body_checksum = crc32c(body_);
  append(encode_piece_head(head_));
  append(body_);
}

void TableSaver::append(std::span<const std::byte> bytes) {
  throw_if(file_->append(bytes), "a table's file cannot be written", path_);
  throw_if(file_->write_back(written_, bytes.size(), false), "a table's file cannot be written",
           path_);
  written_ += bytes.size();
}

void TableSaver::commit() {
  append(encode_table_end(totals_));
  throw_if(file_->sync(), "a table's file cannot be written", path_);
  throw_if(files_.rename(file_->path(), path_), "a table's file cannot get its name", path_);
  file_.reset();
  throw_if(files_.sync_folder(folder_of(path_)), "a table's file cannot get its name", path_);
  committed_ = true;
}

uint64_t save_table(GrowingTable& table, const std::filesystem::path& file,
                    const TableSaveOptions& options, FileSystem& files) {
  TableSaver saver(table, file, options, files);
  while (saver.collect()) saver.write();
  saver.commit();
  return saver.rows();
}

}  // namespace fleet::fluid::tables

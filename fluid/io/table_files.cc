#include "fluid/io/table_files.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/paddle_tensor.h"
#include "fluid/tables/lookup/shared_table.h"
#include "fluid/tables/store/buckets.h"

namespace fleet::fluid::io {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = size_t{1} << 40;

fs::path file_of(const fs::path& directory, const std::string& table, size_t index) {
  return directory / str_cat(table, "_", index);
}

[[noreturn]] void throw_corrupt(const fs::path& path, std::string what, std::string expected,
                                std::string got) {
  throw_error(ErrorCode::kCorruptFile, {.what = std::move(what),
                                        .where = path.string(),
                                        .expected = std::move(expected),
                                        .got = std::move(got),
                                        .fix = "save the table again, whole"});
}

SelectedRows read_file(const fs::path& path) {
  const std::vector<std::byte> bytes = read_whole_file(path, kMaxFile);
  std::span<const std::byte> rest = bytes;
  auto rows = decode_paddle_rows(rest);
  if (!rows.ok()) {
    throw_corrupt(path, "a file of a table is damaged", "selected rows", rows.status().text().what);
  }
  if (rows.value().value.shape().rank() == 0 || !rest.empty()) {
    throw_corrupt(path, "a file of a table holds something else", "one value of rows",
                  str_cat(rest.size(), " bytes behind it"));
  }
  return std::move(rows).value();
}

// The rows of one load, as they come from the files.
class Wanted {
 public:
  Wanted(int64_t first, int64_t stride, int64_t count)
      : first_(first), stride_(stride), here_(static_cast<size_t>(count)) {}

  void take(const SelectedRows& from, const fs::path& path) {
    Shape shape = from.value.shape();
    shape.set(0, static_cast<int64_t>(here_.size()));
    if (!rows_) {
      height_ = from.height;
      rows_ = Tensor::zeros(from.value.dtype(), shape);
    }
    if (from.height != height_ || !(rows_->shape() == shape) ||
        rows_->dtype() != from.value.dtype()) {
      throw_corrupt(path, "the files of a table are of different tables",
                    str_cat(height_, " rows, ", dtype_name(rows_->dtype()), rows_->shape()),
                    str_cat(from.height, " rows, ", dtype_name(from.value.dtype()), shape));
    }
    for (size_t i = 0; i < from.rows.size(); ++i) {
      const int64_t distance = from.rows[i] - first_;
      const int64_t at = distance / stride_;
      if (distance < 0 || distance % stride_ != 0 || at >= static_cast<int64_t>(here_.size())) {
        continue;
      }
      const auto row = static_cast<int64_t>(i);
      rows_->rows(at, at + 1).copy_from(from.value.rows(row, row + 1));
      here_[static_cast<size_t>(at)] = true;
    }
  }

  Tensor whole(const fs::path& directory, const std::string& table) {
    for (size_t i = 0; i < here_.size(); ++i) {
      const int64_t row = first_ + static_cast<int64_t>(i) * stride_;
      if (here_[i] || row >= height_) continue;
      throw_corrupt(directory, "the files of a table do not hold all of its rows",
                    str_cat("row ", row, " of '", table, "'"), "no such row");
    }
    return std::move(*rows_);
  }

 private:
  int64_t first_;
  int64_t stride_;
  std::vector<bool> here_;
  int64_t height_ = 0;
  std::optional<Tensor> rows_;
};

}  // namespace

TableRowsWriter::TableRowsWriter(const fs::path& path, int64_t height, DType dtype,
                                 const Shape& shape)
    : file_(path),
      height_(height),
      dtype_(dtype),
      shape_(shape),
      missing_(static_cast<size_t>(shape[0])) {
  std::vector<std::byte> bytes;
  encode_paddle_rows_begin(missing_, bytes);
  file_.append(bytes);
  if (missing_ == 0) end_numbers();
}

void TableRowsWriter::numbers(std::span<const int64_t> next) {
  if (next.empty()) return;
  file_.append(std::as_bytes(next));
  missing_ -= next.size();
  if (missing_ == 0) end_numbers();
}

void TableRowsWriter::end_numbers() {
  std::vector<std::byte> bytes;
  encode_paddle_rows_middle(height_, dtype_, shape_, bytes);
  file_.append(bytes);
}

void save_table_rows(const fs::path& path, const SelectedRows& rows) {
  TableRowsWriter writer(path, rows.height, rows.value.dtype(), rows.value.shape());
  writer.numbers(rows.rows);
  writer.values({rows.value.raw(), rows.value.bytes()});
  writer.finish();
}

bool has_table_files(const fs::path& directory, const std::string& table) {
  return fs::exists(file_of(directory, table, 0));
}

Tensor load_table_rows(const fs::path& directory, const std::string& table, int64_t first,
                       int64_t stride, int64_t count) {
  Wanted wanted(first, stride, count);
  size_t index = 0;
  do {
    const fs::path path = file_of(directory, table, index);
    wanted.take(read_file(path), path);
  } while (fs::exists(file_of(directory, table, ++index)));
  return wanted.whole(directory, table);
}

namespace {

using tables::GrowingTable;

// Ids and values, in the table's order.
struct AllRows {
  explicit AllRows(const GrowingTable& table) : width(table.options().width) {
    keys.reserve(table.size());
    values.reserve(table.size() * width);
    table.scan(0, tables::kBuckets, [this](const tables::RowView& row) {
      keys.push_back(row.key);
      values.insert(values.end(), row.values.begin(), row.values.end());
    });
  }

  // By id.
  SelectedRows sorted() const {
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [this](size_t a, size_t b) { return keys[a] < keys[b]; });
    SelectedRows rows;
    rows.value =
        Tensor(DType::kFloat32, {static_cast<int64_t>(keys.size()), static_cast<int64_t>(width)});
    rows.rows.reserve(keys.size());
    float* to = rows.value.data<float>();
    for (const size_t at : order) {
      rows.rows.push_back(static_cast<int64_t>(keys[at]));
      to = std::copy_n(values.data() + at * width, width, to);
    }
    return rows;
  }

  size_t width = 0;
  std::vector<uint64_t> keys;
  std::vector<float> values;
};

void check_rows(const SelectedRows& rows, size_t width, const fs::path& path) {
  const Shape& shape = rows.value.shape();
  if (rows.value.dtype() == DType::kFloat32 && shape.rank() == 2 &&
      shape[1] == static_cast<int64_t>(width)) {
    return;
  }
  throw_error(ErrorCode::kInvalidArgument, {.what = "a file's rows do not fit the growing table",
                                            .where = path.string(),
                                            .expected = str_cat("float32 rows of ", width),
                                            .got = str_cat(dtype_name(rows.value.dtype()), shape),
                                            .fix = "give the file of this table"});
}

}  // namespace

uint64_t save_paddle_table(const Scope& scope, const std::string& name, const fs::path& file) {
  SelectedRows rows = growing_table(scope, name)
                          ->reading([](const GrowingTable& table) { return AllRows(table); })
                          .sorted();
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  uint64_t largest = 0;
  for (const int64_t id : rows.rows) largest = std::max(largest, static_cast<uint64_t>(id));
  if (largest >= kMost) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "an id does not fit Paddle's form of a table",
                 .where = str_cat("growing table '", name, "'"),
                 .expected = "ids below 2^63 - 1",
                 .got = str_cat(largest),
                 .fix = "save it by save_persistables, whose files have ids of 64 bits"});
  }
  rows.height = rows.rows.empty() ? 0 : static_cast<int64_t>(largest + 1);
  save_table_rows(file, rows);
  return rows.rows.size();
}

uint64_t load_paddle_table(const Scope& scope, const std::string& name,
                           std::span<const fs::path> files) {
  const std::shared_ptr<tables::SharedTable> table = growing_table(scope, name);
  const tables::TableOptions& options = table->options();
  std::vector<SelectedRows> all;
  for (const fs::path& file : files) {
    check_rows(all.emplace_back(read_file(file)), options.width, file);
  }
  std::vector<float> row(options.width);
  for (const tables::RowState& state : options.states) {
    row.insert(row.end(), state.width, state.initial);
  }
  uint64_t count = 0;
  for (const SelectedRows& rows : all) {
    count += rows.rows.size();
    table->alone([&](GrowingTable& into) {
      const float* values = rows.value.data<float>();
      for (const int64_t id : rows.rows) {
        std::copy_n(values, options.width, row.begin());
        into.put(static_cast<uint64_t>(id), row);
        values += options.width;
      }
    });
  }
  return count;
}

}  // namespace fleet::fluid::io

// Files of a table whose rows several servers have: what each of them writes when it is told to
// save its own (checkpoint_notify), as Paddle does it. File i of table t is "t_<i>": selected
// rows in the form of fluid/io/paddle_tensor.h, numbered as in the whole table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "fluid/core/value.h"
#include "fluid/io/atomic_file.h"

namespace fleet::fluid::io {

// Where a saved model has such files, beside its parameters.
inline constexpr const char* kLookupTableDirectory = "__lookup_table__";

// One such file, written part by part: the numbers of all rows, then their values in the same
// order. Throws ResourceError when it cannot be written; what was there before then stays.
class TableRowsWriter {
 public:
  // `shape`: of the values, with a row for each number; `height`: rows of the whole table.
  TableRowsWriter(const std::filesystem::path& path, int64_t height, DType dtype,
                  const Shape& shape);

  void numbers(std::span<const int64_t> next);
  void values(std::span<const std::byte> next) { file_.append(next); }
  // See AtomicFile.
  void wait_for_disk() { file_.wait_for_disk(); }
  // The file is there. The last call.
  void finish() { file_.commit(); }

 private:
  void end_numbers();

  AtomicFile file_;
  int64_t height_;
  DType dtype_;
  Shape shape_;
  size_t missing_;  // numbers
};

// All of a file at once. Throws as TableRowsWriter does.
void save_table_rows(const std::filesystem::path& path, const SelectedRows& rows);

// Whether the directory has files of that table.
bool has_table_files(const std::filesystem::path& directory, const std::string& table);

// Rows first, first + stride, … of the table, `count` of them, from the files of any number of
// servers; what lies behind the table's last row is zeros. Throws ResourceError when the files do
// not hold all of these rows, or are damaged.
Tensor load_table_rows(const std::filesystem::path& directory, const std::string& table,
                       int64_t first, int64_t stride, int64_t count);

}  // namespace fleet::fluid::io

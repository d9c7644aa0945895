// Files of a table whose rows several servers have: what each of them writes when it is told to
// save its own (checkpoint_notify), as Paddle does it. File i of table t is "t_<i>": selected
// rows in the form of fluid/io/paddle_tensor.h, numbered as in the whole table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "fluid/core/scope.h"
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

// The values of all rows of the scope's growing table, ids ascending, as one such file, which
// Paddle's load op reads; the height is the largest id and one. States are not in it. Takes twice
// the memory of ids and values, and 8 bytes more a row. Returns how many rows there are. Throws
// UsageError for an id from 2^63 - 1 on, which the form lacks, ResourceError when the file cannot
// be written.
uint64_t save_paddle_table(const Scope& scope, const std::string& name,
                           const std::filesystem::path& file);
// Puts the rows of such files into the scope's growing table: over rows of the same ids, beside the
// others. Their states begin anew. Returns how many rows the files have. Throws ResourceError for a
// file that is not there or damaged, UsageError for rows of another width or type; the table is
// then as before.
uint64_t load_paddle_table(const Scope& scope, const std::string& name,
                           std::span<const std::filesystem::path> files);

}  // namespace fleet::fluid::io

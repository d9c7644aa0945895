// Files of a table whose rows several servers have: what each of them writes when it is told to
// save its own (checkpoint_notify), as Paddle does it. File i of table t is "t_<i>": selected
// rows in the form of fluid/io/original_tensor.h, numbered as in the whole table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "fluid/core/value.h"

namespace fleet::fluid::io {

// Where a saved model has such files, beside its parameters.
inline constexpr const char* kLookupTableDirectory = "__lookup_table__";

// Throws ResourceError when the file cannot be written.
void save_table_rows(const std::filesystem::path& path, const SelectedRows& rows);

// Whether the directory has files of that table.
bool has_table_files(const std::filesystem::path& directory, const std::string& table);

// Rows first, first + stride, … of the table, `count` of them, from the files of any number of
// servers; what lies behind the table's last row is zeros. Throws ResourceError when the files do
// not hold all of these rows, or are damaged.
Tensor load_table_rows(const std::filesystem::path& directory, const std::string& table,
                       int64_t first, int64_t stride, int64_t count);

}  // namespace fleet::fluid::io

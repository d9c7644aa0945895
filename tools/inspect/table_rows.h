// What files of growing tables hold (fluid/tables/table_pieces.h). Functions throw ResourceError
// for what is not there or damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/inspect/tensor_values.h"

namespace fleet::inspect {

struct TableInfo {
  std::string name;
  uint64_t width = 0;               // of a row's value
  std::vector<std::string> states;  // that rows keep beside it: "moment 8", with their widths
  std::vector<std::string> files;   // names
  uint64_t bytes = 0;               // of the files
  uint64_t rows = 0;
  uint64_t counted = 0;                // ids that are counted and have no row
  std::optional<ValueSummary> values;  // of all rows, without states
};
// `files`: those of one save. With `values`, every row is read.
TableInfo table_info(const std::string& name, std::span<const std::filesystem::path> files,
                     bool values);

struct RowDifference {
  uint64_t only_a = 0;  // ids that have a row in one only
  uint64_t only_b = 0;
  uint64_t others = 0;  // ids whose values or states have other bits
  bool none() const { return only_a == 0 && only_b == 0 && others == 0; }
};
struct RowFiles {
  std::span<const std::filesystem::path> files;
  uint64_t rows = 0;  // in all of them
};
// Of two tables of one width and with the same states; takes 16 bytes of memory for each row of
// both.
RowDifference row_difference(const RowFiles& a, const RowFiles& b);

}  // namespace fleet::inspect

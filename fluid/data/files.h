// Tensors from the files that data sets come in. Every function reads plain, gzip and zstd files
// alike, checks every length against what the file holds before it allocates, and throws
// ResourceError (kInput: cannot be read; kCorruptFile: not of the format) with the path and the
// place in it. Any thread may call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fluid/core/tensor.h"

namespace fleet::fluid::data {

// What a file may grow to when it is unpacked.
inline constexpr uint64_t kMaxFileBytes = uint64_t{64} << 30;

// The whole file, unpacked if it is gzip or zstd.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = kMaxFileBytes);

// An IDX file (the MNIST format): big-endian, uint8, int8, int16, int32, float32 or float64.
Tensor load_idx(const std::filesystem::path& path);

// A .npy file of NumPy, versions 1 to 3, C order, little-endian: bool, (u)int8, int16, int32,
// int64, float16, float32 or float64.
Tensor load_npy(const std::filesystem::path& path);
void save_npy(const Tensor& tensor, const std::filesystem::path& path);

struct CsvOptions {
  char delimiter = ',';
  bool header = true;  // the first line names the columns; else they are named "0", "1", …
  bool trim = true;    // spaces around a cell that is not quoted do not count
};

// A table of text (RFC 4180: quoted cells may hold delimiters, line ends and doubled quotes).
// Immutable once loaded.
class CsvTable {
 public:
  // Every line must have as many cells as the first. Empty lines are skipped.
  static CsvTable load(const std::filesystem::path& path, const CsvOptions& options = {});
  static CsvTable parse(std::string text, const CsvOptions& options = {},
                        std::string where = "text");

  int64_t rows() const { return rows_; }
  const std::vector<std::string>& names() const { return names_; }
  std::string_view cell(int64_t row, std::string_view column) const;

  // The columns side by side as numbers: [rows, columns] of float32, float64, int32 or int64. A
  // cell that is no number of that type is an error that names line and column.
  Tensor numbers(std::span<const std::string> columns, DType dtype) const;
  // Every column.
  Tensor numbers(DType dtype) const { return numbers(names_, dtype); }
  // A column of words as numbers, [rows, 1] int64: the position of the word in `vocabulary`. An
  // empty vocabulary is filled, in order of first appearance; with a given one, words that it
  // lacks become `unknown`, which is an error when it is negative.
  Tensor categories(std::string_view column, std::vector<std::string>& vocabulary,
                    int64_t unknown = -1) const;

 private:
  struct Cell {
    uint64_t begin;
    uint64_t size;
  };
  size_t column_index(std::string_view name) const;
  std::string_view cell(int64_t row, size_t column) const;
  [[noreturn]] void refuse_cell(int64_t row, size_t column, std::string expected) const;
  void parse_cells(const CsvOptions& options);
  size_t parse_quoted(size_t at, size_t& line, const CsvOptions& options);
  void end_line(size_t cells_before, size_t line);

  std::string where_;
  std::string text_;  // quoted cells are unescaped in place
  std::vector<std::string> names_;
  std::vector<Cell> cells_;    // row by row
  std::vector<size_t> lines_;  // of each row, counted from 1
  int64_t rows_ = 0;
};

}  // namespace fleet::fluid::data

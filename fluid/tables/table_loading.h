// Reads the files that servers wrote of a growing table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/tables/growing_table.h"
#include "fluid/tables/table_pieces.h"

namespace fleet::fluid::tables {

// Whether this server has the bucket.
using BucketFilter = std::function<bool(uint32_t bucket)>;

struct LoadedTable {
  uint64_t rows = 0;
  // By part of the files: of the last delta that is in them.
  std::vector<uint64_t> delta_numbers;
};

// Puts the rows of the buckets, of all parts of one save, in the place of all that the table holds,
// and its clock at the latest of theirs. `files`: all parts, in any order, of however many servers.
// Empty filter: all buckets. A call of the table.
//
// Rows take the fields that the table has; those that files lack are 0, `seen` the clock of the
// file. Widths and states must be the same, but one side may have no states: rows then start with
// new ones, or lose theirs. Throws ResourceError (kInput, kCorruptFile) that names file and piece,
// or UsageError for files that do not belong together or to such a table; the table is then as
// before. While it loads, memory has the old rows and the new.
LoadedTable load_table(GrowingTable& table, std::span<const std::filesystem::path> files,
                       const BucketFilter& wanted = {}, FileSystem& disk = system_files());

// Rows of a file as a table wants them.
class RowConversion {
 public:
  // Throws UsageError where widths or states do not fit.
  RowConversion(const TableFileReader& from, const GrowingTable& to);

  // Of a row in the file, with its id.
  size_t bytes() const { return sizeof(uint64_t) + from_.bytes(); }
  // `from`: with its id.
  void convert(const std::byte* from, std::byte* to) const;

 private:
  RowLayout from_;
  RowLayout to_;
  uint32_t clock_;
  std::vector<float> states_;  // that rows start with which have none in the file
};

// Throws kCorruptFile unless each id lies in a bucket of the piece, and ids of `bytes` each ascend
// by bucket and id.
void check_piece_order(const TableFileReader& file, const PieceHead& head,
                       std::span<const std::byte> ids, size_t bytes);

}  // namespace fleet::fluid::tables

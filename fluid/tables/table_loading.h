// Reads the files that servers wrote of a growing table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
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

// Rows of a file as a table of these options wants them.
class RowConversion {
 public:
  // Throws UsageError where widths or states do not fit.
  RowConversion(const TableFileReader& from, const TableOptions& to);

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

// The rows of a save, read beside the table that they are for.
class TableLoader {
 public:
  // Reads the rows of the buckets, of all parts of one save, for a table of these options. `files`:
  // all parts, in any order, of however many servers. Empty filter: all buckets.
  //
  // Rows take the fields that the table has; those that files lack are 0, `seen` the clock of the
  // file. Widths and states must be the same, but one side may have no states: rows then start with
  // new ones, or lose theirs. Throws ResourceError (kInput, kCorruptFile) that names file and
  // piece, or UsageError for files that do not belong together or to such a table.
  TableLoader(const TableOptions& options, std::span<const std::filesystem::path> files,
              BucketFilter wanted = {}, FileSystem& disk = system_files());
  ~TableLoader();
  TableLoader(const TableLoader&) = delete;
  TableLoader& operator=(const TableLoader&) = delete;

  uint64_t rows() const;
  // Puts them in the place of all that the table holds, and its clock at the latest of theirs. A
  // call of the table; the last one. Throws UsageError while the table is saved.
  LoadedTable put_into(GrowingTable& table);

 private:
  void read(TableFileReader& file);
  void check_part(const TableFileReader& file);
  void check_parts() const;
  bool wants(const PieceHead& head) const;
  void take(const TableFileReader& file, const PieceHead& head, const RowConversion& conversion);
  template <class Put>
  void insert_all(const TableFileReader& file, const PieceHead& head,
                  std::span<const std::byte> ids, size_t bytes, RowStore& store, const Put& put);

  const TableOptions options_;
  const BucketFilter wanted_;
  std::unique_ptr<RowStore> rows_;
  std::unique_ptr<RowStore> waiting_;
  uint64_t settled_ = 0;
  uint32_t clock_ = 0;
  std::vector<bool> present_;  // by part
  std::vector<uint64_t> numbers_;
  std::vector<std::byte> body_;
};

// Both at once: when it throws, the table is as before. While it loads, memory has the old rows and
// the new.
LoadedTable load_table(GrowingTable& table, std::span<const std::filesystem::path> files,
                       const BucketFilter& wanted = {}, FileSystem& disk = system_files());

}  // namespace fleet::fluid::tables

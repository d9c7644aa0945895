// Brings a table up to date from the deltas that servers write of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/tables/growing_table.h"
#include "fluid/tables/table_loading.h"

namespace fleet::fluid::tables {

// Deltas of each part have numbers without gaps; a reader takes them in that order only. Rows that
// were touched get the bytes that they had at the delta's moment, rows that were evicted go. (Show
// and click of a row that only shrink() changed are as its last delta had them.)
class DeltaReader {
 public:
  // `table` holds what was loaded; `numbers` is what load_table() returned, or zeros for tables
  // that were empty when their first deltas were begun. The table must outlive the reader.
  DeltaReader(GrowingTable& table, std::vector<uint64_t> numbers);

  // Reads one delta, of any part. Throws UsageError for one that was read before, and where one
  // before it is missing; ResourceError as load_table(). The table is then as before. A call of the
  // table.
  void read(const std::filesystem::path& file, const BucketFilter& wanted = {},
            FileSystem& disk = system_files());

  // By part, of the last delta that was read.
  const std::vector<uint64_t>& numbers() const { return numbers_; }

 private:
  void check_number(const TableFileReader& file) const;
  void check_pieces(TableFileReader& file) const;
  void take(const PieceHead& head, const std::vector<std::byte>& body,
            const RowConversion& conversion, const BucketFilter& wanted);

  GrowingTable& table_;
  std::vector<uint64_t> numbers_;
};

}  // namespace fleet::fluid::tables

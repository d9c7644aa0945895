// Writes a growing table, or what changed since the last delta, as of one moment, piece by piece,
// while the table goes on.
//
//   TableSaver saver(table, "ctr.table");     // the moment
//   while (saver.collect()) {                 // a call of the table
//     saver.write();                          // none: it may run beside calls of the table
//   }
//   saver.commit();                         // none, as write()
//
// Memory: two pieces, and the chunks of rows that the table changed before the saver came to
// them (kept_bytes()). Whoever wants to bound these collects more pieces between two updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/tables/growing_table.h"
#include "fluid/tables/store/row_snapshot.h"
#include "fluid/tables/table_pieces.h"

namespace fleet::fluid::tables {

struct TableSaveOptions {
  // What changed since the last delta was written; needs TableOptions::deltas. Its number is that
  // of the last one and 1.
  bool delta = false;
  // Which of the files that servers write of one table this is.
  uint32_t part = 0;
  uint32_t parts = 1;
  bool states = true;  // of optimizers; for whoever only looks rows up, they are left out
  size_t piece_bytes = size_t{4} << 20;  // about
};

// The constructor, collect() and the destructor are calls of the table, which must outlive it.
// Everything throws ResourceError when the system does not do it; a file that had the name is then
// as before.
class TableSaver {
 public:
  // Without a `file`, open() comes before write().
  TableSaver(GrowingTable& table, const std::filesystem::path& file,
             const TableSaveOptions& options = {}, FileSystem& files = system_files());
  // Behind commit(), a delta is the table's last one. Without it, the file is removed, and the next
  // delta has all rows of the table.
  ~TableSaver();
  TableSaver(const TableSaver&) = delete;
  TableSaver& operator=(const TableSaver&) = delete;

  // Makes the file. No call of the table.
  void open(const std::filesystem::path& file);
  // Reads the next piece; false: there is none left.
  bool collect();
  // Writes what collect() read last.
  void write();
  // Syncs the file and gives it its name. The last call.
  void commit();

  uint64_t kept_bytes() const { return rows_->kept_bytes() + waiting_->kept_bytes(); }
  // Of pieces that were collected.
  uint64_t rows() const { return totals_.rows; }

 private:
  void append(std::span<const std::byte> bytes);
  void take_gone();
  void drop_states();

  GrowingTable& table_;
  std::filesystem::path path_;
  FileSystem& files_;
  TableFileInfo info_;
  const size_t piece_bytes_;
  std::unique_ptr<RowSnapshot> rows_;
  std::unique_ptr<RowSnapshot> waiting_;
  std::vector<uint64_t> gone_;  // ascending by bucket and id
  size_t next_gone_ = 0;
  std::unique_ptr<OutputFile> file_;
  uint64_t written_ = 0;
  PieceHead head_;
  PieceHead totals_;
  std::vector<std::byte> body_;
  std::vector<std::byte> waiting_body_;
  bool committed_ = false;
};

// All at once. Returns how many rows were written.
uint64_t save_table(GrowingTable& table, const std::filesystem::path& file,
                    const TableSaveOptions& options = {}, FileSystem& files = system_files());

}  // namespace fleet::fluid::tables

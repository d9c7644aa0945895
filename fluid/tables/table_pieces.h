// The form of a growing table's files: whole tables, and deltas.
//
//   file    header, pieces, end; all numbers little-endian
//   header  "FLEETTBL", u32 version, u32 bytes of the rest, u32 CRC-32C of the rest; the rest is
//           TableFileInfo in the order of its fields
//   piece   a head of 48 bytes: "PIEC", u32 number of the piece, u32 first bucket, u32 bucket
//   behind
//           the last, u64 rows, u64 waiting ids, u64 ids that are gone, u32 CRC-32C of the body,
//           u32 CRC-32C of the head before; then the body:
//             rows     ascending by bucket and id, each u64 id and what RowLayout says
//             waiting  ids that are counted and have no row: u64 id, two words of 32 bits
//             gone     in deltas, ids whose rows were evicted: u64
//   end     a head "ENDS" with the number of pieces, and the sums of their rows, waiting and gone
//   ids
//
// Every byte of a file is under a checksum, or says what is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/tables/row_layout.h"
#include "fluid/tables/table_options.h"

namespace fleet::fluid::tables {

inline constexpr uint32_t kTableFileVersion = 1;

struct TableFileInfo {
  bool delta = false;
  uint32_t part = 0;   // of the files that servers wrote of one table
  uint32_t parts = 1;  // how many these are
  uint32_t clock = 0;
  uint64_t delta_number = 0;  // of this delta; of a table, of its last one
  uint64_t seed = 0;
  std::string table;
  size_t width = 0;
  RowFields fields;
  std::vector<RowState> states;

  RowLayout layout() const { return {width, states, fields}; }
};

struct PieceHead {
  uint32_t number = 0;
  uint32_t first = 0;  // bucket
  uint32_t end = 0;    // bucket behind the last
  uint64_t rows = 0;
  uint64_t waiting = 0;
  uint64_t gone = 0;
  uint32_t body_checksum = 0;
};

inline constexpr size_t kPieceHeadBytes = 48;
inline constexpr size_t kWaitingIdBytes = 16;
inline constexpr size_t kGoneIdBytes = 8;

// The id that a row in a file begins with.
inline uint64_t id_at(const std::byte* row) {
  uint64_t id = 0;
  std::memcpy(&id, row, sizeof id);
  return id;
}

std::vector<std::byte> encode_table_header(const TableFileInfo& info);
std::array<std::byte, kPieceHeadBytes> encode_piece_head(const PieceHead& head);
std::array<std::byte, kPieceHeadBytes> encode_table_end(const PieceHead& totals);

// Reads a file from its begin to its end. Its bytes are hostile: sizes are held against the file
// before memory is taken. Throws ResourceError that names file and piece: kInput when it cannot be
// read, kCorruptFile when it is damaged or another file.
class TableFileReader {
 public:
  TableFileReader(const std::filesystem::path& file, FileSystem& files);

  const TableFileInfo& info() const { return info_; }
  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // The next piece's head; false: there was none, and the end is as it must be.
  bool next(PieceHead& head);
  // The body of the piece whose head came last.
  void read(std::vector<std::byte>& body);
  void skip();
  // An error about what the piece whose head came last holds.
  [[noreturn]] void fail_piece(const std::string& what) const;

 private:
  void read_header();
  void read_bytes(std::span<std::byte> into, const std::string& entry);
  uint64_t body_bytes() const;
  void check_head(const PieceHead& head) const;
  void check_end(const PieceHead& totals) const;
  [[noreturn]] void fail(const std::string& entry, const std::string& what) const;

  std::filesystem::path path_;
  std::unique_ptr<InputFile> file_;
  uint64_t bytes_ = 0;  // of the file
  uint64_t left_ = 0;   // of them
  TableFileInfo info_;
  size_t row_bytes_ = 0;  // with the id
  PieceHead head_;
  PieceHead totals_;
};

}  // namespace fleet::fluid::tables

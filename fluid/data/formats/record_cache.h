// Records in a binary file, written once from what text was parsed to, and then memory-mapped:
// columns of numbers that need no parsing, any record by its number.
//
// The file: a header (magic, version), groups of records one after the other, of each slot the ends
// of the records' values (for slots without a width) and the values, 64 bytes aligned, and then an
// index of all that, with a CRC-32C of every array and of itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/data/formats/records.h"

namespace fleet::fluid::data {

struct CacheWriterOptions {
  int64_t group_records = 1 << 16;  // what is written, and checked, at once
  FileSystem* files = nullptr;      // null: the system's
};

// Used by one thread. The file has its name once finish() has returned, and is whole on the disk
// then; without finish() there is none. Throws ResourceError (kInput) where it cannot be written.
class CacheWriter {
 public:
  CacheWriter(std::filesystem::path path, const Slots& slots, CacheWriterOptions options = {});
  ~CacheWriter();
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  void append(const RecordRange& range);
  void append(const RecordBatch& batch) { append({&batch, 0, batch.records()}); }
  void finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Any thread. The file must not be changed while it is mapped; what replaces it by name does no
// harm. Throws ResourceError that names the file and the entry: kCorruptFile for one that is
// damaged, cut or no cache (a group when it is first used), kInput for one that cannot be read; and
// Error (kNotSupported) for one of a newer version.
class RecordCache {
 public:
  explicit RecordCache(const std::filesystem::path& path);
  ~RecordCache();
  RecordCache(const RecordCache&) = delete;
  RecordCache& operator=(const RecordCache&) = delete;

  const Slots& slots() const { return slots_; }
  int64_t records() const { return records_; }
  int64_t groups() const { return static_cast<int64_t>(groups_.size()); }
  // Records of a group, in the mapped memory; valid as long as this cache.
  const RecordBatch& group(int64_t group) const;
  // Where a record is: in one batch, from 0 to records() - 1.
  RecordRange range_of(int64_t record) const;
  // The records with these numbers, in this order, as tensors_of() makes them. UsageError for a
  // number that there is not.
  std::vector<Tensor> read(std::span<const int64_t> records) const;

 private:
  struct Group;
  void map(const std::filesystem::path& path);
  void read_index();
  void check_group(const Group& group) const;

  std::filesystem::path path_;
  std::shared_ptr<const std::byte> memory_;
  size_t bytes_ = 0;
  Slots slots_;
  int64_t records_ = 0;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace fleet::fluid::data

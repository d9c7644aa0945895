// The rows of a RowStore as they are at one moment, read bucket by bucket while the store goes on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "fluid/tables/row_store.h"

namespace fleet::fluid::tables {

// Before rows of a chunk change that it has not read yet, the store has it copy the chunk: memory
// for chunks that change meanwhile, and for nothing else. Making it and next_bucket() count as calls
// of the store; they run while no other call does.
class RowSnapshot {
 public:
  enum class Which {
    kAll,
    kTouched,  // since the last snapshot of these, whose marks it takes away
  };
  // The store must outlive it.
  RowSnapshot(RowStore& store, Which which);
  ~RowSnapshot();
  RowSnapshot(const RowSnapshot&) = delete;
  RowSnapshot& operator=(const RowSnapshot&) = delete;

  // Of the next bucket that next_bucket() gives; kBuckets: none is left.
  uint32_t bucket() const { return next_; }
  // Appends the bytes of the next bucket's rows, in the order of their keys as unsigned numbers.
  // Returns how many rows. Not to be called when none is left.
  uint64_t next_bucket(std::vector<std::byte>& out);
  // Of chunks that were copied and are still to be read.
  uint64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class RowStore;

  // Any thread, as RowStore::change().
  void keep(uint32_t bucket, uint32_t chunk);
  std::byte* row_at(uint32_t bucket, uint32_t number) const;
  bool wants(uint32_t bucket, uint32_t number) const;

  RowStore* const store_;
  const Which which_;
  uint32_t next_ = 0;
  std::vector<uint32_t> rows_;    // by bucket, at the moment
  std::vector<uint32_t> first_;   // by bucket, of its chunks in the next two
  std::vector<uint64_t> touched_;  // by chunk; kTouched
  std::vector<std::atomic<std::byte*>> kept_;  // by chunk; null: as in the store
  std::mutex keeping_;
  std::atomic<uint64_t> kept_bytes_ = 0;
  std::vector<std::pair<uint64_t, const std::byte*>> order_;  // keys and rows of a bucket
};

}  // namespace fleet::fluid::tables

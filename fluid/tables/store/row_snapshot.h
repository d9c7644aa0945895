// The rows of a RowStore as they are at one moment, read bucket by bucket while the store goes on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fluid/tables/store/row_store.h"

namespace fleet::fluid::tables {

// Before rows of a chunk change that it has not read yet, the store has it copy the chunk, and
// before rows of a bucket are erased, which keys it has: memory for what changes meanwhile, and for
// nothing else. Making it and next_bucket() count as calls of the store; they run while no other
// call does.
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

  // That next_bucket() gives next; kBuckets: none is left.
  uint32_t bucket() const { return next_; }
  // Appends key and bytes of each of the bucket's rows, in the order of their keys as unsigned
  // numbers. Returns how many rows. Not to be called when none is left.
  uint64_t next_bucket(std::vector<std::byte>& out);
  // Of what was copied and is still to be read.
  uint64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class RowStore;
  // A row's key and its number in the bucket.
  using Key = std::pair<uint64_t, uint32_t>;

  // Any thread, as RowStore::change().
  void keep(uint32_t bucket, uint32_t chunk);
  void keep_keys(uint32_t bucket);
  void append_keys(uint32_t bucket, std::vector<Key>& keys) const;
  const std::byte* row_at(uint32_t bucket, uint32_t number) const;
  void forget(uint32_t bucket);

  RowStore* const store_;
  const Which which_;
  uint32_t next_ = 0;
  std::vector<uint32_t> rows_;                                // by bucket, at the moment
  std::vector<uint32_t> first_;                               // by bucket, of its chunks
  std::vector<uint64_t> touched_;                             // kTouched: words of each chunk
  std::vector<std::atomic<std::byte*>> kept_;                 // by chunk; null: as in the store
  std::vector<std::unique_ptr<std::vector<Key>>> kept_keys_;  // by bucket; null: as in the store
  std::mutex keeping_;
  std::atomic<uint64_t> kept_bytes_ = 0;
  std::vector<Key> order_;
};

}  // namespace fleet::fluid::tables

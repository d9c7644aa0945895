// Rows of bytes by 64-bit key: where they are, and how they are found. What the bytes mean is
// GrowingTable's (growing_table.h).
//
// A key's hash says its bucket, of 4 096. A bucket has its rows one behind the other, in chunks of
// 64, and an index of its own: groups of 16 words, a cache line each, where a word is ten bits of
// the hash and a row's number in the bucket. A row is looked for in the group that the hash says,
// then in the next ones, until a group has an empty word. So a row costs its bytes and
//   index     4 B / 0.83 to 0.94 (a full index becomes an eighth larger)
//   chunk     16 B for 64 rows; room for rows to come: 1/64 of the bucket on average
// and nothing is ever copied as a whole: a bucket that grows copies its index and one chunk.
// Finding a row reads three cache lines that no cache has, when the table is large: a group, and
// the two that a row's begin lies in.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.h"
#include "fluid/tables/line_memory.h"

namespace fleet::fluid::tables {

inline constexpr uint32_t kBuckets = 4096;

// The same in every process, for every table: resizing a cluster moves whole buckets.
inline uint32_t bucket_of(uint64_t key) {
  return static_cast<uint32_t>(mix64(key) >> 52);
}

class RowSnapshot;

// One caller at a time, but: visit(), row(), change() and mark_touched() may be called at once from
// several threads, for rows that differ. Pointers to rows are valid until rows are inserted or
// erased. Throws std::bad_alloc, and is then as before; UsageError when a bucket is full (4 million
// rows: 17 thousand million in a table).
class RowStore {
 public:
  static constexpr uint32_t kChunkRows = 64;
  static constexpr uint32_t kNone = 0xffffffff;
  // Keys that are looked up together: their cache lines are on their way at once.
  static constexpr size_t kBlock = 32;

  // Where a row is. Valid until rows are inserted or erased.
  struct Place {
    uint32_t bucket = 0;
    uint32_t number = kNone;  // in the bucket
    bool found() const { return number != kNone; }
  };
  // What is known of keys [first, first + count) of a call of visit().
  struct Block {
    size_t first = 0;
    size_t count = 0;
    std::array<std::byte*, kBlock> rows;  // null: no such row
    std::array<Place, kBlock> places;
  };

  // A multiple of 8; the first 8 of a row are its key. `tracks`: whether mark_touched() does
  // anything.
  explicit RowStore(size_t row_bytes, bool tracks = false);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  size_t row_bytes() const { return row_bytes_; }
  uint64_t size() const { return rows_; }
  uint32_t size_of(uint32_t bucket) const { return buckets_[bucket].rows; }
  // Memory that is in use: rows, room for more, indexes and buckets.
  uint64_t bytes() const { return memory_.used() + buckets_.size() * sizeof(Bucket); }
  // Memory that the system gave.
  uint64_t reserved_bytes() const { return memory_.reserved() + buckets_.size() * sizeof(Bucket); }

  Place find(uint64_t key) const;
  std::byte* row(Place place) const { return row_at(buckets_[place.bucket], place.number); }
  static uint64_t key_of(const std::byte* row) {
    uint64_t key = 0;
    std::memcpy(&key, row, sizeof key);
    return key;
  }
  // Calls consume(block) for the keys, in their order, up to kBlock at a time; `needed` bytes of
  // each row are then in the cache.
  template <class Consume>
  void visit(std::span<const uint64_t> keys, size_t needed, const Consume& consume) const;

  // Starts to read what inserting the key reads.
  void prefetch_insert(uint64_t key) const;
  // The row of the key; a new one is zeros behind its key, and touched. `made`: it is new.
  Place insert(uint64_t key, bool& made);
  // Before bytes of the row change: snapshots keep those of now.
  void change(Place place) {
    if (!snapshots_.empty()) keep(place.bucket, place.number / kChunkRows);
  }
  // The next snapshot of touched rows has it.
  void mark_touched(Place place) {
    if (!tracks_) return;
    const std::atomic_ref<uint64_t> word(
        buckets_[place.bucket].chunks[place.number / kChunkRows].touched);
    const uint64_t bit = uint64_t{1} << (place.number % kChunkRows);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  void mark_all_touched();
  uint64_t touched() const;  // rows

  // Erases the rows of the bucket for which gone(row) is true; each row is asked once. `gone` must
  // not throw.
  template <class Gone>
  uint64_t erase_if(uint32_t bucket, const Gone& gone);
  // each(row) for the rows of a bucket, in no order.
  template <class Each>
  void for_each(uint32_t bucket, const Each& each) const {
    const Bucket& in = buckets_[bucket];
    for (uint32_t i = 0; i < in.rows; ++i) each(row_at(in, i));
  }
  // Room for so many rows more in the bucket.
  void reserve(uint32_t bucket, uint32_t more);

 private:
  friend class RowSnapshot;

  struct Chunk {
    std::byte* rows = nullptr;
    uint64_t touched = 0;  // a bit for each row
  };
  struct Bucket {
    const uint32_t* index = nullptr;
    Chunk* chunks = nullptr;
    uint32_t groups = 0;    // 0: the index is a line of zeros that all share
    uint32_t rows = 0;
    uint32_t capacity = 0;  // rows that the chunks have room for; all but the last are full
    uint32_t slots = 0;     // chunks that there is room for
  };
  // A key on its way through visit().
  struct Probe {
    Block block;
    std::array<uint64_t, kBlock> hashes;
    std::array<const uint32_t*, kBlock> groups;
  };

  std::byte* row_at(const Bucket& bucket, uint32_t number) const {
    return bucket.chunks[number / kChunkRows].rows + number % kChunkRows * row_bytes_;
  }
  static const uint32_t* home(const Bucket& bucket, uint64_t hash) {
    return bucket.index + ((hash >> 20 & 0xffffffff) * bucket.groups >> 32) * 16;
  }
  void begin_probe(std::span<const uint64_t> keys, size_t first, Probe& probe) const;
  void match(Probe& probe) const;
  void fetch(Probe& probe, size_t needed) const;
  void settle(std::span<const uint64_t> keys, Probe& probe) const;
  uint32_t search(const Bucket& bucket, uint64_t key, uint64_t hash) const;

  void rebuild_index(Bucket& bucket, uint32_t groups);
  void put(uint32_t* index, uint32_t groups, uint64_t hash, uint32_t number) const;
  void grow_rows(Bucket& bucket, uint32_t capacity);
  void set_slots(Bucket& bucket, uint32_t slots);
  void resize_last(Bucket& bucket, uint32_t capacity);
  void erase_row(uint32_t bucket, uint32_t number);
  void shrink(Bucket& bucket);
  void keep(uint32_t bucket, uint32_t chunk);

  const size_t row_bytes_;
  const bool tracks_;
  uint64_t rows_ = 0;
  LineMemory memory_;
  std::vector<Bucket> buckets_;
  std::vector<RowSnapshot*> snapshots_;
};

template <class Consume>
void RowStore::visit(std::span<const uint64_t> keys, size_t needed, const Consume& consume) const {
  // While a block is consumed, the rows of the next one are on their way to the cache, and the
  // groups of the one behind.
  std::array<Probe, 3> probes;
  const size_t blocks = (keys.size() + kBlock - 1) / kBlock;
  if (blocks > 0) begin_probe(keys, 0, probes[0]);
  for (size_t b = 0; b < blocks + 1; ++b) {
    if (b + 1 < blocks) begin_probe(keys, (b + 1) * kBlock, probes[(b + 1) % 3]);
    if (b < blocks) {
      match(probes[b % 3]);
      fetch(probes[b % 3], needed);
    }
    if (b > 0) {
      Probe& ready = probes[(b - 1) % 3];
      settle(keys, ready);
      consume(static_cast<const Block&>(ready.block));
    }
  }
}

template <class Gone>
uint64_t RowStore::erase_if(uint32_t bucket, const Gone& gone) {
  Bucket& in = buckets_[bucket];
  const uint32_t before = in.rows;
  for (uint32_t i = 0; i < in.rows;) {
    if (gone(static_cast<const std::byte*>(row_at(in, i)))) {
      erase_row(bucket, i);
    } else {
      ++i;
    }
  }
  if (in.rows != before) shrink(in);
  return before - in.rows;
}

}  // namespace fleet::fluid::tables

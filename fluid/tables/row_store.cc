#include "fluid/tables/row_store.h"

#include <algorithm>
#include <immintrin.h>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/row_snapshot.h"

namespace fleet::fluid::tables {
namespace {

constexpr uint32_t kGroup = 16;  // words of a group: a cache line
constexpr int kNumberBits = 22;
constexpr uint32_t kNumberMask = (uint32_t{1} << kNumberBits) - 1;
constexpr uint32_t kMostRows = kNumberMask;  // a word has number + 1
constexpr size_t kLineBytes = 64;
constexpr size_t kGroupBytes = kGroup * sizeof(uint32_t);

// The index of a bucket without rows.
alignas(kLineBytes) constexpr std::array<uint32_t, kGroup> kEmptyGroup{};

// The bits of a word that say what the key's hash is like, never 0.
uint32_t tag_of(uint64_t hash) {
  const auto tag = static_cast<uint32_t>(hash & 0x3ff);
  return (tag == 0 ? 1 : tag) << kNumberBits;
}

// Bit i: word i of the group has the tag.
uint32_t matches(const uint32_t* group, uint32_t tag) {
  const __m256i wanted = _mm256_set1_epi32(static_cast<int>(tag));
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(~kNumberMask));
  const auto half = [&](const uint32_t* words) {
    const __m256i all = _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
    const __m256i same = _mm256_cmpeq_epi32(_mm256_and_si256(all, mask), wanted);
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(same)));
  };
  return half(group) | half(group + 8) << 8;
}

// Words are put from the first on and never taken out, so that the last one says it.
bool is_full(const uint32_t* group) {
  return group[kGroup - 1] != 0;
}

uint32_t number_in(uint32_t word) {
  return (word & kNumberMask) - 1;
}

// Groups for so many rows: 15 of 16 words may be used. At least an eighth more than there were.
uint32_t groups_for(uint32_t rows) {
  return rows == 0 ? 0 : (rows + 14) / 15;
}

// Rows that a bucket makes room for at a time.
uint32_t step_of(uint32_t rows) {
  return std::max<uint32_t>(2, rows / 32);
}

void prefetch(const void* address) {
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
}

}  // namespace

RowStore::RowStore(size_t row_bytes, bool tracks)
    : row_bytes_(row_bytes),
      tracks_(tracks),
      memory_(std::max<size_t>(kChunkRows * row_bytes, (size_t{1} << 20))),
      buckets_(kBuckets) {
  for (Bucket& bucket : buckets_) bucket.index = kEmptyGroup.data();
}

RowStore::~RowStore() = default;

void RowStore::begin_probe(std::span<const uint64_t> keys, size_t first, Probe& probe) const {
  probe.block.first = first;
  probe.block.count = std::min(kBlock, keys.size() - first);
  for (size_t i = 0; i < probe.block.count; ++i) {
    const uint64_t hash = mix64(keys[first + i]);
    probe.hashes[i] = hash;
    probe.groups[i] = home(buckets_[hash >> 52], hash);
    prefetch(probe.groups[i]);
  }
}

void RowStore::match(Probe& probe) const {
  Block& block = probe.block;
  for (size_t i = 0; i < block.count; ++i) {
    const auto bucket = static_cast<uint32_t>(probe.hashes[i] >> 52);
    block.places[i] = {bucket, kNone};
    const uint32_t found = matches(probe.groups[i], tag_of(probe.hashes[i]));
    if (found == 0) continue;
    block.places[i].number = number_in(probe.groups[i][std::countr_zero(found)]);
    prefetch(&buckets_[bucket].chunks[block.places[i].number / kChunkRows]);
  }
}

void RowStore::fetch(Probe& probe, size_t needed) const {
  Block& block = probe.block;
  for (size_t i = 0; i < block.count; ++i) {
    block.rows[i] = nullptr;
    if (!block.places[i].found()) continue;
    std::byte* const begin = row(block.places[i]);
    block.rows[i] = begin;
    const auto at = reinterpret_cast<uintptr_t>(begin);
    for (uintptr_t line = at / kLineBytes; line <= (at + needed - 1) / kLineBytes; ++line) {
      prefetch(reinterpret_cast<const void*>(line * kLineBytes));
    }
  }
}

void RowStore::settle(std::span<const uint64_t> keys, Probe& probe) const {
  Block& block = probe.block;
  for (size_t i = 0; i < block.count; ++i) {
    const uint64_t key = keys[block.first + i];
    if (block.rows[i] != nullptr && key_of(block.rows[i]) == key) continue;
    if (block.rows[i] == nullptr && !is_full(probe.groups[i])) continue;
    Place& place = block.places[i];
    place.number = search(buckets_[place.bucket], key, probe.hashes[i]);
    block.rows[i] = place.found() ? row(place) : nullptr;
  }
}

uint32_t RowStore::search(const Bucket& bucket, uint64_t key, uint64_t hash) const {
  const uint32_t tag = tag_of(hash);
  const uint32_t* const end = bucket.index + bucket.groups * kGroup;
  for (const uint32_t* group = home(bucket, hash);;) {
    for (uint32_t found = matches(group, tag); found != 0; found &= found - 1) {
      const uint32_t number = number_in(group[std::countr_zero(found)]);
      if (key_of(row_at(bucket, number)) == key) return number;
    }
    if (!is_full(group)) return kNone;
    group += kGroup;
    if (group == end) group = bucket.index;
  }
}

RowStore::Place RowStore::find(uint64_t key) const {
  const uint64_t hash = mix64(key);
  const auto bucket = static_cast<uint32_t>(hash >> 52);
  return {bucket, search(buckets_[bucket], key, hash)};
}

void RowStore::prefetch_insert(uint64_t key) const {
  const uint64_t hash = mix64(key);
  const Bucket& bucket = buckets_[hash >> 52];
  prefetch(home(bucket, hash));
  if (bucket.rows % kChunkRows != 0) prefetch(row_at(bucket, bucket.rows));
}

RowStore::Place RowStore::insert(uint64_t key, bool& made) {
  const uint64_t hash = mix64(key);
  const auto b = static_cast<uint32_t>(hash >> 52);
  Bucket& bucket = buckets_[b];
  const uint32_t there = search(bucket, key, hash);
  made = there == kNone;
  if (!made) return {b, there};
  const uint32_t number = bucket.rows;
  if (number == bucket.capacity) grow_rows(bucket, number + step_of(number));
  if (groups_for(number + 1) > bucket.groups) {
    rebuild_index(bucket, std::max(bucket.groups + 1, bucket.groups * 9 / 8));
  }
  if (!snapshots_.empty()) keep(b, number / kChunkRows);
  std::byte* const to = row_at(bucket, number);
  std::memcpy(to, &key, sizeof key);
  std::memset(to + sizeof key, 0, row_bytes_ - sizeof key);
  put(const_cast<uint32_t*>(bucket.index), bucket.groups, hash, number);
  ++bucket.rows;
  ++rows_;
  mark_touched({b, number});
  return {b, number};
}

void RowStore::put(uint32_t* index, uint32_t groups, uint64_t hash, uint32_t number) const {
  uint64_t group = (hash >> 20 & 0xffffffff) * groups >> 32;
  while (is_full(index + group * kGroup)) group = group + 1 == groups ? 0 : group + 1;
  uint32_t* word = index + group * kGroup;
  while (*word != 0) ++word;
  *word = tag_of(hash) | (number + 1);
}

void RowStore::rebuild_index(Bucket& bucket, uint32_t groups) {
  const uint32_t* index = kEmptyGroup.data();
  if (groups > 0) {
    const size_t bytes = groups * kGroupBytes;
    std::byte* const memory = memory_.take(bytes);
    std::memset(memory, 0, bytes);
    auto* const words = reinterpret_cast<uint32_t*>(memory);
    constexpr uint32_t kAhead = 16;
    for (uint32_t i = 0; i < bucket.rows; ++i) {
      if (i + kAhead < bucket.rows) prefetch(row_at(bucket, i + kAhead));
      put(words, groups, mix64(key_of(row_at(bucket, i))), i);
    }
    index = words;
  }
  if (bucket.groups > 0) {
    memory_.give(reinterpret_cast<std::byte*>(const_cast<uint32_t*>(bucket.index)),
                 bucket.groups * kGroupBytes);
  }
  bucket.index = index;
  bucket.groups = groups;
}

void RowStore::set_slots(Bucket& bucket, uint32_t slots) {
  Chunk* chunks = nullptr;
  const uint32_t used = (bucket.capacity + kChunkRows - 1) / kChunkRows;
  if (slots > 0) {
    chunks = reinterpret_cast<Chunk*>(memory_.take(slots * sizeof(Chunk)));
    std::uninitialized_fill_n(chunks, slots, Chunk{});
    std::copy_n(bucket.chunks, used, chunks);
  }
  memory_.give(reinterpret_cast<std::byte*>(bucket.chunks), bucket.slots * sizeof(Chunk));
  bucket.chunks = chunks;
  bucket.slots = slots;
}

void RowStore::resize_last(Bucket& bucket, uint32_t capacity) {
  const uint32_t last = (bucket.capacity - 1) / kChunkRows;
  const uint32_t begin = last * kChunkRows;
  Chunk& chunk = bucket.chunks[last];
  std::byte* const rows = memory_.take((capacity - begin) * row_bytes_);
  std::memcpy(rows, chunk.rows, (bucket.rows - begin) * row_bytes_);
  memory_.give(chunk.rows, (bucket.capacity - begin) * row_bytes_);
  chunk.rows = rows;
  bucket.capacity = capacity;
}

void RowStore::grow_rows(Bucket& bucket, uint32_t capacity) {
  if (capacity >= kMostRows) {
    throw_error(ErrorCode::kNotSupported,
                {.what = "a table has too many rows for one server",
                 .where = "a bucket of a growing table",
                 .expected = str_cat("fewer than ", kMostRows, " rows in each of ", kBuckets,
                                     " buckets"),
                 .got = str_cat(capacity, " rows"),
                 .fix = "use more servers, or evict rows"});
  }
  if (bucket.capacity % kChunkRows != 0) {
    const uint32_t end = (bucket.capacity / kChunkRows + 1) * kChunkRows;
    resize_last(bucket, std::min(end, capacity));
  }
  while (bucket.capacity < capacity) {
    const uint32_t chunk = bucket.capacity / kChunkRows;
    if (chunk == bucket.slots) set_slots(bucket, chunk + std::max<uint32_t>(4, chunk / 8 / 4 * 4));
    const uint32_t more = std::min(kChunkRows, capacity - bucket.capacity);
    bucket.chunks[chunk] = {memory_.take(more * row_bytes_), 0};
    bucket.capacity += more;
  }
}

void RowStore::reserve(uint32_t bucket, uint32_t more) {
  Bucket& in = buckets_[bucket];
  const uint64_t rows = uint64_t{in.rows} + more;
  if (rows > in.capacity) {
    grow_rows(in, static_cast<uint32_t>(std::min<uint64_t>(rows, kMostRows)));
  }
  if (const uint32_t groups = groups_for(in.rows + more); groups > in.groups) {
    rebuild_index(in, groups);
  }
}

void RowStore::erase_row(uint32_t bucket, uint32_t number) {
  Bucket& in = buckets_[bucket];
  const uint32_t last = in.rows - 1;
  if (!snapshots_.empty()) {
    keep(bucket, number / kChunkRows);
    keep(bucket, last / kChunkRows);
  }
  uint64_t& from = in.chunks[last / kChunkRows].touched;
  const uint64_t touched = from >> (last % kChunkRows) & 1;
  from &= ~(uint64_t{1} << (last % kChunkRows));
  if (number != last) {
    std::memcpy(row_at(in, number), row_at(in, last), row_bytes_);
    uint64_t& to = in.chunks[number / kChunkRows].touched;
    to = (to & ~(uint64_t{1} << (number % kChunkRows))) | touched << (number % kChunkRows);
  }
  --in.rows;
  --rows_;
}

void RowStore::shrink(Bucket& bucket) {
  // The index names rows that are gone, so it is made anew even if its size stays; out of the memory
  // of the old one, so that this cannot fail.
  const uint32_t had = std::exchange(bucket.groups, 0);
  memory_.give(reinterpret_cast<std::byte*>(const_cast<uint32_t*>(bucket.index)),
               had * kGroupBytes);
  const uint32_t groups = groups_for(bucket.rows);
  rebuild_index(bucket, std::min(had, groups + groups / 16));
  const uint32_t chunks = (bucket.rows + kChunkRows - 1) / kChunkRows;
  for (uint32_t chunk = (bucket.capacity + kChunkRows - 1) / kChunkRows; chunk > chunks; --chunk) {
    const uint32_t begin = (chunk - 1) * kChunkRows;
    memory_.give(bucket.chunks[chunk - 1].rows, (bucket.capacity - begin) * row_bytes_);
    bucket.chunks[chunk - 1] = {};
    bucket.capacity = begin;
  }
  const uint32_t wanted = bucket.rows + step_of(bucket.rows);
  if (bucket.capacity > wanted) resize_last(bucket, wanted);
  if (const uint32_t slots = (chunks + 3) / 4 * 4; slots < bucket.slots) set_slots(bucket, slots);
}

void RowStore::mark_all_touched() {
  for (Bucket& bucket : buckets_) {
    for (uint32_t i = 0; i < bucket.rows; i += kChunkRows) {
      const uint32_t count = std::min(kChunkRows, bucket.rows - i);
      bucket.chunks[i / kChunkRows].touched =
          count == kChunkRows ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    }
  }
}

uint64_t RowStore::touched() const {
  uint64_t rows = 0;
  for (const Bucket& bucket : buckets_) {
    for (uint32_t i = 0; i < bucket.rows; i += kChunkRows) {
      rows += static_cast<uint64_t>(std::popcount(bucket.chunks[i / kChunkRows].touched));
    }
  }
  return rows;
}

void RowStore::keep(uint32_t bucket, uint32_t chunk) {
  for (RowSnapshot* const snapshot : snapshots_) snapshot->keep(bucket, chunk);
}

}  // namespace fleet::fluid::tables

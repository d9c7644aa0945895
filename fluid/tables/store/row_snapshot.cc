#include "fluid/tables/store/row_snapshot.h"

#include <algorithm>
#include <cstring>

namespace fleet::fluid::tables {
namespace {

constexpr uint32_t kRows = RowStore::kChunkRows;
constexpr uint32_t kWords = kRows / 64;

}  // namespace

RowSnapshot::RowSnapshot(RowStore& store, Which which)
    : store_(&store), which_(which), kept_keys_(kBuckets) {
  uint32_t chunks = 0;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    rows_.push_back(store.buckets_[b].rows);
    first_.push_back(chunks);
    chunks += (rows_[b] + kRows - 1) / kRows;
  }
  first_.push_back(chunks);
  kept_ = std::vector<std::atomic<std::byte*>>(chunks);
  if (which == Which::kTouched) touched_.resize(size_t{chunks} * kWords);
  store.snapshots_.push_back(this);
  for (uint32_t b = 0; which == Which::kTouched && b < kBuckets; ++b) {
    for (uint32_t word = 0; word * 64 < rows_[b]; ++word) {
      touched_[first_[b] * kWords + word] = std::exchange(store.touched_[b][word], 0);
    }
  }
}

RowSnapshot::~RowSnapshot() {
  std::erase(store_->snapshots_, this);
  for (const auto& chunk : kept_) delete[] chunk.load(std::memory_order_relaxed);
}

void RowSnapshot::keep(uint32_t bucket, uint32_t chunk) {
  const uint32_t at = first_[bucket] + chunk;
  if (bucket < next_ || at >= first_[bucket + 1]) return;
  if (kept_[at].load(std::memory_order_acquire) != nullptr) return;
  if (which_ == Which::kTouched) {
    const auto words = touched_.begin() + at * kWords;
    if (std::all_of(words, words + kWords, [](uint64_t word) { return word == 0; })) return;
  }
  const std::lock_guard lock(keeping_);
  if (kept_[at].load(std::memory_order_relaxed) != nullptr) return;
  const size_t bytes = std::min(kRows, rows_[bucket] - chunk * kRows) * store_->row_bytes();
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memcpy(copy.get(), store_->row({bucket, chunk * kRows}), bytes);
  kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  kept_[at].store(copy.release(), std::memory_order_release);
}

void RowSnapshot::append_keys(uint32_t bucket, std::vector<Key>& keys) const {
  RowStore::each_slot(store_->buckets_[bucket], [&](const IndexGroup& group, uint32_t slot) {
    const uint32_t number = group.number(slot);
    if (number >= rows_[bucket]) return;
    const bool wanted = which_ == Which::kAll ||
                        (touched_[first_[bucket] * kWords + number / 64] >> (number % 64) & 1) != 0;
    if (wanted) keys.emplace_back(unmix64(group.hash(slot, bucket)), number);
  });
}

void RowSnapshot::keep_keys(uint32_t bucket) {
  if (bucket < next_ || kept_keys_[bucket] != nullptr) return;
  auto keys = std::make_unique<std::vector<Key>>();
  append_keys(bucket, *keys);
  kept_bytes_.fetch_add(keys->size() * sizeof(Key), std::memory_order_relaxed);
  kept_keys_[bucket] = std::move(keys);
}

const std::byte* RowSnapshot::row_at(uint32_t bucket, uint32_t number) const {
  const std::byte* const kept =
      kept_[first_[bucket] + number / kRows].load(std::memory_order_relaxed);
  if (kept == nullptr) return store_->row({bucket, number});
  return kept + number % kRows * store_->row_bytes();
}

uint64_t RowSnapshot::next_bucket(std::vector<std::byte>& out) {
  const uint32_t bucket = next_;
  order_.clear();
  if (kept_keys_[bucket] != nullptr) {
    order_.swap(*kept_keys_[bucket]);
    kept_bytes_.fetch_sub(order_.size() * sizeof(Key), std::memory_order_relaxed);
    kept_keys_[bucket].reset();
  } else {
    append_keys(bucket, order_);
  }
  std::sort(order_.begin(), order_.end());
  const size_t bytes = store_->row_bytes();
  size_t at = out.size();
  out.resize(at + order_.size() * (sizeof(uint64_t) + bytes));
  for (const auto& [key, number] : order_) {
    std::memcpy(out.data() + at, &key, sizeof key);
    std::memcpy(out.data() + at + sizeof key, row_at(bucket, number), bytes);
    at += sizeof key + bytes;
  }
  ++next_;
  forget(bucket);
  return order_.size();
}

void RowSnapshot::forget(uint32_t bucket) {
  for (uint32_t c = first_[bucket]; c < first_[bucket + 1]; ++c) {
    std::byte* const kept = kept_[c].exchange(nullptr, std::memory_order_relaxed);
    if (kept == nullptr) continue;
    const uint32_t rows = std::min(kRows, rows_[bucket] - (c - first_[bucket]) * kRows);
    kept_bytes_.fetch_sub(rows * store_->row_bytes(), std::memory_order_relaxed);
    delete[] kept;
  }
}

}  // namespace fleet::fluid::tables

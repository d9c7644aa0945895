#include "fluid/tables/row_snapshot.h"

#include <algorithm>
#include <cstring>

namespace fleet::fluid::tables {
namespace {

constexpr uint32_t kRows = RowStore::kChunkRows;

}  // namespace

RowSnapshot::RowSnapshot(RowStore& store, Which which) : store_(&store), which_(which) {
  uint32_t chunks = 0;
  for (uint32_t b = 0; b < kBuckets; ++b) {
    rows_.push_back(store.buckets_[b].rows);
    first_.push_back(chunks);
    chunks += (rows_[b] + kRows - 1) / kRows;
  }
  first_.push_back(chunks);
  kept_ = std::vector<std::atomic<std::byte*>>(chunks);
  if (which == Which::kTouched) {
    touched_.resize(chunks);
    store.snapshots_.reserve(store.snapshots_.size() + 1);
    for (uint32_t b = 0; b < kBuckets; ++b) {
      for (uint32_t c = first_[b]; c < first_[b + 1]; ++c) {
        touched_[c] = std::exchange(store.buckets_[b].chunks[c - first_[b]].touched, 0);
      }
    }
  }
  store.snapshots_.push_back(this);
}

RowSnapshot::~RowSnapshot() {
  std::erase(store_->snapshots_, this);
  for (const auto& chunk : kept_) delete[] chunk.load(std::memory_order_relaxed);
}

void RowSnapshot::keep(uint32_t bucket, uint32_t chunk) {
  const uint32_t at = first_[bucket] + chunk;
  if (bucket < next_ || at >= first_[bucket + 1]) return;
  if (which_ == Which::kTouched && touched_[at] == 0) return;
  if (kept_[at].load(std::memory_order_acquire) != nullptr) return;
  const std::lock_guard lock(keeping_);
  if (kept_[at].load(std::memory_order_relaxed) != nullptr) return;
  const size_t bytes = std::min(kRows, rows_[bucket] - chunk * kRows) * store_->row_bytes();
  auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memcpy(copy.get(), store_->row({bucket, chunk * kRows}), bytes);
  kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  kept_[at].store(copy.release(), std::memory_order_release);
}

std::byte* RowSnapshot::row_at(uint32_t bucket, uint32_t number) const {
  std::byte* const kept =
      kept_[first_[bucket] + number / kRows].load(std::memory_order_relaxed);
  if (kept == nullptr) return store_->row({bucket, number});
  return kept + number % kRows * store_->row_bytes();
}

bool RowSnapshot::wants(uint32_t bucket, uint32_t number) const {
  if (which_ == Which::kAll) return true;
  return (touched_[first_[bucket] + number / kRows] >> (number % kRows) & 1) != 0;
}

uint64_t RowSnapshot::next_bucket(std::vector<std::byte>& out) {
  const uint32_t bucket = next_;
  order_.clear();
  for (uint32_t i = 0; i < rows_[bucket]; ++i) {
    if (!wants(bucket, i)) continue;
    const std::byte* const row = row_at(bucket, i);
    order_.emplace_back(RowStore::key_of(row), row);
  }
  std::sort(order_.begin(), order_.end());
  const size_t bytes = store_->row_bytes();
  size_t at = out.size();
  out.resize(at + order_.size() * bytes);
  for (const auto& [key, row] : order_) {
    std::memcpy(out.data() + at, row, bytes);
    at += bytes;
  }
  ++next_;
  for (uint32_t c = first_[bucket]; c < first_[bucket + 1]; ++c) {
    std::byte* const kept = kept_[c].exchange(nullptr, std::memory_order_relaxed);
    if (kept == nullptr) continue;
    const uint32_t rows = std::min(kRows, rows_[bucket] - (c - first_[bucket]) * kRows);
    kept_bytes_.fetch_sub(rows * bytes, std::memory_order_relaxed);
    delete[] kept;
  }
  return order_.size();
}

}  // namespace fleet::fluid::tables

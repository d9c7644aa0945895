#include "strategies/parameter_server/worker/rows/hot_rows.h"

#include <algorithm>
#include <cstring>

namespace fleet::strategies {
namespace {

constexpr uint64_t kLeastSweep = 4096;  // rows

}  // namespace

HotRows::HotRows(size_t width, uint32_t age)
    : width_(width),
      age_(age),
      rows_(width * sizeof(float) + sizeof(uint64_t)),
      next_sweep_(kLeastSweep) {}

bool HotRows::is_old(const std::byte* row, uint64_t step) const {
  uint64_t fetched = 0;
  std::memcpy(&fetched, row + width_ * sizeof(float), sizeof(fetched));
  return fetched + age_ < step;
}

std::vector<bool> HotRows::find(std::span<const uint64_t> ids, uint64_t step, float* values) {
  std::vector<bool> found(ids.size());
  const std::lock_guard lock(mutex_);
  rows_.visit(ids, rows_.row_bytes(), [&](size_t i, const std::byte* row, fluid::tables::RowPlace) {
    if (row == nullptr || is_old(row, step)) return;
    std::memcpy(values + i * width_, row, width_ * sizeof(float));
    found[i] = true;
  });
  return found;
}

void HotRows::keep(std::span<const uint64_t> ids, uint64_t step, float* values) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ids.size(); ++i) {
    bool made = false;
    std::byte* const row = rows_.row(rows_.insert(ids[i], made));
    std::memcpy(row, values + i * width_, width_ * sizeof(float));
    std::memcpy(row + width_ * sizeof(float), &step, sizeof(step));
  }
  if (rows_.size() > next_sweep_) forget_old(step);
}

void HotRows::forget_old(uint64_t step) {
  for (uint32_t bucket = 0; bucket < fluid::tables::kBuckets; ++bucket) {
    rows_.erase_if(bucket, [&](uint64_t, const std::byte* row) { return is_old(row, step); });
  }
  next_sweep_ = std::max(kLeastSweep, 2 * rows_.size());
}

uint64_t HotRows::size() const {
  const std::lock_guard lock(mutex_);
  return rows_.size();
}

}  // namespace fleet::strategies

// Rows of a growing table that a worker has looked up not long ago: it uses them again instead of
// asking for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "fluid/tables/store/row_store.h"
#include "strategies/parameter_server/worker/rows/kept_rows.h"

namespace fleet::strategies {

// Any thread. Memory: rows that were looked up in the last `age` steps, and at most as many again.
class HotRows final : public KeptRows {
 public:
  // A row is used for `age` steps behind the one that fetched it; 1 or more.
  HotRows(size_t width, uint32_t age);

  // Steps never become less by more than `age`.
  std::vector<bool> find(std::span<const uint64_t> ids, uint64_t step, float* values) override;
  void keep(std::span<const uint64_t> ids, uint64_t step, float* values) override;

  uint64_t size() const;

 private:
  bool is_old(const std::byte* row, uint64_t step) const;
  void forget_old(uint64_t step);

  const size_t width_;
  const uint32_t age_;
  mutable std::mutex mutex_;      // guards what follows
  fluid::tables::RowStore rows_;  // values, and the step that fetched them
  uint64_t next_sweep_;           // rows from which on old ones are forgotten
};

}  // namespace fleet::strategies

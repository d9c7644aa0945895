#include "strategies/parameter_server/protocol/row_inbox.h"

#include <utility>

#include "base/strings.h"
#include "fluid/core/row_sum.h"

namespace fleet::strategies {

using transport::PayloadTarget;

RowInbox::RowInbox(const std::vector<SliceGeometry>& slices, const ContributorTable& table,
                   bool sum_on_arrival)
    : table_(table), add_(table), sum_on_arrival_(sum_on_arrival) {
  for (const SliceGeometry& geometry : slices) {
    slices_.push_back({geometry, std::vector<Slot>(geometry.rows ? table.size() : 0), {}});
  }
}

Status RowInbox::check(const Slot& slot, const SliceGeometry& geometry, const PieceKey& key,
                       uint64_t bytes) const {
  if (slot.step == key.step && slot.contribution.rows() != *key.rows) {
    return {ErrorCode::kBadFrame,
            {.what = "pieces of one gradient disagree about how many rows it has",
             .where = "parameter server",
             .expected = str_cat(slot.contribution.rows()),
             .got = str_cat(*key.rows),
             .fix = "run the same version in every process"}};
  }
  return RowContribution::check(geometry, *key.rows, key.piece, bytes);
}

PayloadTarget RowInbox::prepare(uint64_t session, const PieceKey& key, uint32_t contributor,
                                uint64_t bytes, uint64_t step) {
  const Slice& slice = slices_[key.variable];
  const Slot& slot = slice.slots[contributor];
  Status status = check(slot, slice.geometry, key, bytes);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  const bool known = key.step < step || (slot.step == step && slot.contribution.has(key.piece));
  return known ? PayloadTarget::discard() : pieces_.lend(session, bytes);
}

Result<bool> RowInbox::take(uint64_t session, const PieceKey& key, uint32_t contributor,
                            transport::ConstBytes payload, uint64_t step) {
  Slice& slice = slices_[key.variable];
  Slot& slot = slice.slots[contributor];
  if (key.step < step) return false;
  const bool lent = pieces_.holds(session, payload);
  if (!lent && *key.rows > 0) return false;  // discarded
  Status status = check(slot, slice.geometry, key, payload.size());
  if (!status.ok()) return status;
  if (slot.step != step) slot = {step, RowContribution(slice.geometry, *key.rows)};
  if (slot.contribution.has(key.piece)) return false;
  status = slot.contribution.take(key.piece, payload);
  if (!status.ok()) {
    slot = {};
    return status;
  }
  if (sum_on_arrival_ && slot.contribution.complete()) slice.arrivals.push_back(contributor);
  return true;
}

std::vector<uint32_t> RowInbox::present(uint32_t index, uint64_t step) const {
  std::vector<uint32_t> present;
  const auto& slots = slices_[index].slots;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].step == step && slots[i].contribution.complete()) present.push_back(i);
  }
  return present;
}

template <class T>
void RowInbox::sum_as(Slice& slice, const std::vector<uint32_t>& present,
                      fluid::SelectedRows& out) const {
  std::vector<fluid::RowsView<T>> parts(table_.size());
  for (const uint32_t i : present) {
    const RowContribution& contribution = slice.slots[i].contribution;
    parts[i] = {contribution.numbers(), reinterpret_cast<const T*>(contribution.values())};
  }
  const auto add = [&](std::span<const T* const> arrays, T* sum, size_t n) {
    if (sum_on_arrival_) return ContributorSum::in_order<T>(arrays, slice.arrivals, sum, n);
    add_(arrays, std::span(present), sum, n);
  };
  out = fluid::sum_of_parts<T>(parts, out.height, out.value.shape(), add);
}

void RowInbox::sum(uint32_t index, uint64_t step, fluid::SelectedRows& out) {
  Slice& slice = slices_[index];
  const auto here = present(index, step);
  if (slice.geometry.dtype == fluid::DType::kFloat64) {
    sum_as<double>(slice, here, out);
  } else {
    sum_as<float>(slice, here, out);
  }
  slice.arrivals.clear();
  for (Slot& slot : slice.slots) slot.contribution.release();
}

}  // namespace fleet::strategies

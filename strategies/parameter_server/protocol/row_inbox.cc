#include "strategies/parameter_server/protocol/row_inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/core/row_sum.h"

namespace fleet::strategies {
namespace {

using transport::PayloadTarget;

template <class T>
fluid::SelectedRows sum_of(std::span<const int64_t> left_rows, const std::byte* left,
                           std::span<const int64_t> right_rows, const std::byte* right,
                           int64_t height, int64_t width) {
  const fluid::RowsView<T> both[] = {{left_rows, reinterpret_cast<const T*>(left)},
                                     {right_rows, reinterpret_cast<const T*>(right)}};
  return fluid::sum_of_parts<T>(
      both, height, fluid::Shape{0, width},
      [](std::span<const T* const> arrays, T* out, size_t n) { tree_sum<T>(arrays, out, n); });
}

}  // namespace

RowInbox::RowInbox(const std::vector<SliceGeometry>& slices, const ContributorTable& table,
                   const SumTree& tree, const SyncServerRules& rules,
                   std::function<void(uint32_t slice)> whole)
    : table_(table), rules_(rules), whole_(std::move(whole)), slices_(slices.size()) {
  for (size_t i = 0; i < slices.size(); ++i) {
    slices_[i].geometry = slices[i];
    if (!slices[i].rows) continue;
    slices_[i].whole.resize(table.size(), kNotWhole);
    slices_[i].sums = std::make_unique<SiblingSums<Part>>(tree);
  }
}

void RowInbox::begin(uint64_t step, const std::vector<bool>& active) {
  step_ = step;
  uint32_t awaited = 0;
  for (uint32_t worker = 0; worker < table_.workers(); ++worker) {
    if (active[worker]) awaited += table_.last_of(worker) - table_.first_of(worker);
  }
  for (Slice& slice : slices_) {
    if (!slice.geometry.rows) continue;
    slice.awaited = awaited;
    slice.arrived = 0;
    slice.shards = 0;
    slice.partial.clear();
    std::fill(slice.whole.begin(), slice.whole.end(), kNotWhole);
  }
}

Status RowInbox::check(const Slice& slice, const PieceKey& key, uint32_t contributor,
                       uint64_t bytes) const {
  const auto partial = slice.partial.find(contributor);
  const uint64_t known =
      partial == slice.partial.end() ? slice.whole[contributor] : partial->second.rows();
  if (key.step == step_ && known != kNotWhole && known != *key.rows) {
    return {ErrorCode::kBadFrame,
            {.what = "pieces of one gradient disagree about how many rows it has",
             .where = "parameter server",
             .expected = str_cat(known),
             .got = str_cat(*key.rows),
             .fix = "run the same version in every process"}};
  }
  return RowContribution::check(slice.geometry, *key.rows, key.piece, bytes);
}

bool RowInbox::has(const Slice& slice, const PieceKey& key, uint32_t contributor) const {
  if (key.step < step_ || slice.whole[contributor] != kNotWhole) return true;
  const auto partial = slice.partial.find(contributor);
  return partial != slice.partial.end() && partial->second.has(key.piece);
}

PayloadTarget RowInbox::prepare(uint64_t session, const PieceKey& key, uint32_t contributor,
                                uint64_t bytes) {
  const Slice& slice = slices_[key.variable];
  Status status = check(slice, key, contributor, bytes);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  if (has(slice, key, contributor)) return PayloadTarget::discard();
  return pieces_.lend(session, bytes);
}

Result<bool> RowInbox::take(uint64_t session, const PieceKey& key, uint32_t contributor,
                            transport::ConstBytes payload) {
  Slice& slice = slices_[key.variable];
  if (key.step < step_) return false;
  const bool lent = pieces_.holds(session, payload);
  if (!lent && *key.rows > 0) return false;  // discarded
  Status status = check(slice, key, contributor, payload.size());
  if (!status.ok()) return status;
  if (has(slice, key, contributor)) return false;
  auto partial = slice.partial.find(contributor);
  if (partial == slice.partial.end()) {
    partial = slice.partial.emplace(contributor, RowContribution(slice.geometry, *key.rows)).first;
  }
  status = partial->second.take(key.piece, payload);
  if (!status.ok()) {
    slice.partial.erase(partial);
    return status;
  }
  if (partial->second.complete()) complete(key.variable, contributor);
  return true;
}

void RowInbox::complete(uint32_t index, uint32_t contributor) {
  // A sum of two parts has the union of their rows; a row that only one has counts as zero in the
  // other. Siblings of the tree over shards are added up as soon as both are whole, so that the
  // order of arrival changes neither the rows nor a bit.
  Slice& slice = slices_[index];
  const auto partial = slice.partial.find(contributor);
  const auto kept = std::make_shared<RowContribution>(std::move(partial->second));
  slice.partial.erase(partial);
  slice.whole[contributor] = kept->rows();
  slice.shards += table_[contributor].node.size();
  slice.sums->add(
      rules_.place(contributor, slice.arrived++), Part{kept->numbers(), kept->values(), kept},
      [&](const Part& left, const Part& right, bool) { return join(slice.geometry, left, right); });
  if (slice.awaited > 0 && --slice.awaited == 0) whole_(index);
}

RowInbox::Part RowInbox::join(const SliceGeometry& geometry, const Part& left,
                              const Part& right) const {
  const auto width = static_cast<int64_t>(geometry.row_bytes / fluid::dtype_size(geometry.dtype));
  const auto add = geometry.dtype == fluid::DType::kFloat64 ? &sum_of<double> : &sum_of<float>;
  const auto sum = std::make_shared<fluid::SelectedRows>(
      add(left.rows, left.values, right.rows, right.values, geometry.height, width));
  return {sum->rows, sum->value.raw(), sum, sum};
}

void RowInbox::pass(uint32_t worker) {
  for (uint32_t index = 0; index < slices_.size(); ++index) {
    Slice& slice = slices_[index];
    if (!slice.geometry.rows || slice.awaited == 0) continue;
    for (uint32_t c = table_.first_of(worker); c < table_.last_of(worker); ++c) {
      if (slice.whole[c] == kNotWhole && slice.awaited > 0) --slice.awaited;
    }
    if (slice.awaited == 0) whole_(index);
  }
}

void RowInbox::sum(uint32_t index, fluid::SelectedRows& out) {
  Slice& slice = slices_[index];
  const Part sum = slice.sums->finish(
      [&](const Part& left, const Part& right, bool) { return join(slice.geometry, left, right); });
  fluid::Shape shape = out.value.shape();
  shape.set(0, static_cast<int64_t>(sum.rows.size()));
  if (sum.made != nullptr) {
    out.rows = std::move(sum.made->rows);
    out.value = sum.made->value.reshaped(shape);
    return;
  }
  out.rows.assign(sum.rows.begin(), sum.rows.end());
  out.value = fluid::Tensor(slice.geometry.dtype, shape);
  if (out.value.bytes() > 0) std::memcpy(out.value.raw(), sum.values, out.value.bytes());
}

}  // namespace fleet::strategies

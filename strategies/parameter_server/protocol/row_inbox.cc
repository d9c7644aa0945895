#include "strategies/parameter_server/protocol/row_inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/core/row_sum.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {
namespace {

using transport::PayloadTarget;

std::vector<bool> sparse_of(const std::vector<SliceGeometry>& slices) {
  std::vector<bool> sparse;
  sparse.reserve(slices.size());
  for (const SliceGeometry& slice : slices) sparse.push_back(slice.rows);
  return sparse;
}

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
                   const SumTree& tree, uint64_t window_bytes, const SyncServerRules& rules,
                   std::function<void(uint32_t slice)> whole)
    : table_(table),
      rules_(rules),
      whole_(std::move(whole)),
      slices_(slices.size()),
      window_(sparse_of(slices), table.size(), window_bytes) {
  for (size_t i = 0; i < slices.size(); ++i) {
    slices_[i].geometry = slices[i];
    if (!slices[i].rows) continue;
    slices_[i].rows.resize(table.size(), kUnknown);
    slices_[i].sums = std::make_unique<SiblingSums<Part>>(tree);
  }
}

void RowInbox::begin(uint64_t step, const std::vector<bool>& active) {
  step_ = step;
  std::vector<bool> contributing;
  for (uint32_t c = 0; c < table_.size(); ++c) contributing.push_back(active[table_[c].worker]);
  window_.begin(contributing);
  const auto awaited = std::count(contributing.begin(), contributing.end(), true);
  for (Slice& slice : slices_) {
    if (!slice.geometry.rows) continue;
    slice.awaited = static_cast<uint32_t>(awaited);
    slice.arrived = 0;
    slice.shards = 0;
    slice.partial.clear();
    std::fill(slice.rows.begin(), slice.rows.end(), kUnknown);
  }
  held_bytes_ = 0;
}

Status RowInbox::check_rows(const Slice& slice, uint32_t contributor, uint64_t rows) {
  const uint64_t known = slice.rows[contributor];
  if (known == kUnknown || known == rows) {
    return RowContribution::check_rows(slice.geometry, rows);
  }
  return {ErrorCode::kBadFrame,
          {.what = "pieces of one gradient disagree about how many rows it has",
           .where = "parameter server",
           .expected = str_cat(known),
           .got = str_cat(rows),
           .fix = "run the same version in every process"}};
}

Status RowInbox::check(const PieceKey& key, uint32_t contributor, uint64_t bytes) const {
  const Slice& slice = slices_[key.variable];
  if (key.step == step_) {
    Status status = check_rows(slice, contributor, *key.rows);
    if (!status.ok()) return status;
  }
  return RowContribution::check(slice.geometry, *key.rows, key.piece, bytes);
}

bool RowInbox::has(const PieceKey& key, uint32_t contributor) const {
  if (key.step < step_ || window_.ended({key.variable, contributor})) return true;
  const Slice& slice = slices_[key.variable];
  const auto partial = slice.partial.find(contributor);
  return partial != slice.partial.end() && partial->second.has(key.piece);
}

Status RowInbox::ask(const PieceKey& key, uint32_t contributor) {
  Slice& slice = slices_[key.variable];
  Status status = check_rows(slice, contributor, *key.rows);
  if (!status.ok()) return status;
  slice.rows[contributor] = *key.rows;
  window_.ask({key.variable, contributor}, memory_of_rows(slice.geometry, *key.rows));
  return {};
}

// The gradient comes now, or has begun to.
Status RowInbox::admit(const PieceKey& key, uint32_t contributor) {
  Slice& slice = slices_[key.variable];
  const RowGradient gradient{key.variable, contributor};
  const uint64_t bytes = bytes_of_rows(slice.geometry, *key.rows);
  if (window_.is_open(gradient) ||
      (window_.unknown(gradient) && window_.take_free(gradient, bytes))) {
    slice.rows[contributor] = *key.rows;
    return {};
  }
  return bad_frame("a sparse gradient came before the server let it in",
                   str_cat(window_.free_bytes(), " bytes at most in a step, without asking"),
                   str_cat(bytes, " bytes more"));
}

PayloadTarget RowInbox::prepare(uint64_t session, const PieceKey& key, uint32_t contributor,
                                uint64_t bytes) {
  Status status = check(key, contributor, bytes);
  if (status.ok() && has(key, contributor)) return PayloadTarget::discard();
  if (status.ok()) status = admit(key, contributor);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  return pieces_.lend(session, bytes);
}

Result<bool> RowInbox::take(uint64_t session, const PieceKey& key, uint32_t contributor,
                            transport::ConstBytes payload) {
  if (key.step < step_) return false;
  Buffer memory = pieces_.take(session, payload);
  if (!memory && *key.rows > 0) return false;  // discarded
  Status status = check(key, contributor, payload.size());
  if (!status.ok()) return status;
  if (has(key, contributor)) return false;
  status = admit(key, contributor);
  if (!status.ok()) return status;
  Slice& slice = slices_[key.variable];
  auto partial = slice.partial.find(contributor);
  if (partial == slice.partial.end()) {
    partial = slice.partial.emplace(contributor, RowContribution(slice.geometry, *key.rows)).first;
    held_bytes_ += memory_of_rows(slice.geometry, *key.rows);
  }
  status = partial->second.take(key.piece, std::move(memory));
  if (!status.ok()) {
    slice.partial.erase(partial);
    slice.rows[contributor] = kUnknown;
    held_bytes_ -= memory_of_rows(slice.geometry, *key.rows);
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
  slice.shards += table_[contributor].node.size();
  slice.sums->add(
      rules_.place(contributor, slice.arrived++), Part{kept->numbers(), kept->values(), kept},
      [&](const Part& left, const Part& right, bool) { return join(slice.geometry, left, right); });
  end({index, contributor});
}

void RowInbox::end(RowGradient gradient) {
  window_.end(gradient);
  if (--slices_[gradient.slice].awaited == 0) whole_(gradient.slice);
}

RowInbox::Part RowInbox::join(const SliceGeometry& geometry, const Part& left, const Part& right) {
  const auto width =
      static_cast<int64_t>(geometry.row_bytes / fluid::dtype_size(geometry.row_dtype()));
  const auto add = geometry.dtype == fluid::DType::kFloat64 ? &sum_of<double> : &sum_of<float>;
  const auto sum = std::make_shared<fluid::SelectedRows>(
      add(left.rows, left.values, right.rows, right.values, geometry.height, width));
  held_bytes_ += memory_of_rows(geometry, sum->rows.size());
  held_bytes_ -= memory_of_rows(geometry, left.rows.size() + right.rows.size());
  return {sum->rows, sum->value.raw(), sum, sum};
}

void RowInbox::pass(uint32_t worker, uint32_t lane, uint32_t lanes) {
  for (uint32_t index = lane; index < slices_.size(); index += lanes) {
    if (!slices_[index].geometry.rows) continue;
    for (uint32_t c = table_.first_of(worker); c < table_.last_of(worker); ++c) {
      if (window_.unknown({index, c})) end({index, c});
    }
  }
}

void RowInbox::pass(uint32_t worker) {
  for (uint32_t index = 0; index < slices_.size(); ++index) {
    if (!slices_[index].geometry.rows) continue;
    for (uint32_t c = table_.first_of(worker); c < table_.last_of(worker); ++c) {
      if (!window_.ended({index, c})) end({index, c});
    }
  }
}

void RowInbox::sum(uint32_t index, fluid::SelectedRows& out) {
  Slice& slice = slices_[index];
  const Part sum = slice.sums->finish(
      [&](const Part& left, const Part& right, bool) { return join(slice.geometry, left, right); });
  held_bytes_ -= memory_of_rows(slice.geometry, sum.rows.size());
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

#include "fluid/tables/row_updates.h"

#include <algorithm>

#include "fluid/tables/float_copy_impl.h"

namespace fleet::fluid::tables {
namespace {

// Of a block: half of a first-level cache, so that the rows' own memory finds room beside it.
constexpr size_t kBlockFloats = 16384 / sizeof(float);
constexpr size_t kLeastRows = 16;
constexpr size_t kMostRows = 256;

}  // namespace

BlockSink::BlockSink(const BlockUpdate& update, size_t width, std::span<const size_t> state_widths)
    : update_(update), width_(width), state_widths_(state_widths) {
  size_t floats = 2 * width;
  for (const size_t state : state_widths) floats += state;
  most_ = std::clamp(kBlockFloats / floats, kLeastRows, kMostRows);
  keys_.reserve(most_);
  rows_.reserve(most_);
  row_gradients_.reserve(most_);
  memory_.resize(most_ * floats);
  values_ = memory_.data();
  float* next = values_ + most_ * width;
  for (const size_t state : state_widths) {
    states_.push_back(next);
    next += most_ * state;
  }
  gradients_ = next;
}

void BlockSink::add(uint64_t key, float* row, const float* gradient) {
  const size_t i = rows_.size();
  keys_.push_back(key);
  rows_.push_back(row);
  row_gradients_.push_back(gradient);
  copy_floats(row, values_ + i * width_, width_);
  row += width_;
  for (size_t s = 0; s < states_.size(); ++s) {
    copy_floats(row, states_[s] + i * state_widths_[s], state_widths_[s]);
    row += state_widths_[s];
  }
  if (rows_.size() == most_) flush();
}

const float* BlockSink::gathered_gradients() {
  const size_t n = rows_.size();
  size_t in_order = 1;
  while (in_order < n && row_gradients_[in_order] == row_gradients_[0] + in_order * width_) {
    ++in_order;
  }
  if (in_order == n) return row_gradients_[0];
  for (size_t i = 0; i < n; ++i) {
    copy_floats(row_gradients_[i], gradients_ + i * width_, width_);
  }
  return gradients_;
}

void BlockSink::flush() {
  if (rows_.empty()) return;
  update_.update({keys_, values_, states_, gathered_gradients()});
  for (size_t i = 0; i < rows_.size(); ++i) {
    float* row = rows_[i];
    copy_floats(values_ + i * width_, row, width_);
    row += width_;
    for (size_t s = 0; s < states_.size(); ++s) {
      copy_floats(states_[s] + i * state_widths_[s], row, state_widths_[s]);
      row += state_widths_[s];
    }
  }
  keys_.clear();
  rows_.clear();
  row_gradients_.clear();
}

void InPlaceSink::add(uint64_t, float* row, const float* gradient) {
  rows_.push_back({row, gradient});
  if (rows_.size() == kMostRows) flush();
}

void InPlaceSink::flush() {
  if (!rows_.empty()) update_.update(rows_);
  rows_.clear();
}

}  // namespace fleet::fluid::tables

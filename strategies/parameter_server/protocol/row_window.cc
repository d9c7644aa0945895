#include "strategies/parameter_server/protocol/row_window.h"

#include <algorithm>
#include <utility>

namespace fleet::strategies {

RowWindow::RowWindow(const std::vector<bool>& sparse, uint32_t contributors, uint64_t window_bytes)
    : contributors_(contributors),
      half_(window_bytes / 2),
      slices_(sparse.size()),
      free_used_(contributors) {
  for (uint32_t i = 0; i < sparse.size(); ++i) {
    if (!sparse[i]) continue;
    slices_[i].states.resize(contributors);
    slices_[i].charges.resize(contributors);
    sparse_.push_back(i);
  }
}

void RowWindow::begin(const std::vector<bool>& active) {
  asking_.clear();
  asking_in_turn_.clear();
  beyond_.reset();
  charged_ = 0;
  std::fill(free_used_.begin(), free_used_.end(), 0);
  for (const uint32_t slice : sparse_) {
    slices_[slice].turn = 0;
    std::fill(slices_[slice].states.begin(), slices_[slice].states.end(), State::kUnknown);
    std::fill(slices_[slice].charges.begin(), slices_[slice].charges.end(), 0);
    for (uint32_t contributor = 0; contributor < contributors_; ++contributor) {
      if (!active[contributor]) end({slice, contributor});
    }
  }
}

bool RowWindow::take_free(RowGradient gradient, uint64_t bytes) {
  uint64_t& used = free_used_[gradient.contributor];
  if (bytes > free_bytes() - used) return false;
  used += bytes;
  open(gradient, 0);
  return true;
}

void RowWindow::ask(RowGradient gradient, uint64_t bytes) {
  if (!unknown(gradient)) return;
  slices_[gradient.slice].states[gradient.contributor] = State::kAsking;
  asking_.emplace(gradient, bytes);
  if (in_turn(gradient)) asking_in_turn_.insert(gradient);
}

std::vector<RowGradient> RowWindow::let_in() {
  std::vector<RowGradient> opened;
  while (const std::optional<RowGradient> gradient = next()) {
    const auto asked = asking_.find(*gradient);
    open(*gradient, asked->second);
    asking_.erase(asked);
    asking_in_turn_.erase(*gradient);
    opened.push_back(*gradient);
  }
  return opened;
}

std::optional<RowGradient> RowWindow::next() {
  if (asking_.empty()) return std::nullopt;
  const auto& [first, bytes] = *asking_.begin();
  if (charged_ + bytes <= half_) return first;
  if (beyond_ || asking_in_turn_.empty()) return std::nullopt;
  beyond_ = *asking_in_turn_.begin();
  return beyond_;
}

void RowWindow::open(RowGradient gradient, uint64_t charge) {
  Slice& slice = slices_[gradient.slice];
  slice.states[gradient.contributor] = State::kOpen;
  slice.charges[gradient.contributor] = charge;
  charged_ += charge;
}

void RowWindow::end(RowGradient gradient) {
  Slice& slice = slices_[gradient.slice];
  if (std::exchange(slice.states[gradient.contributor], State::kEnded) == State::kAsking) {
    asking_.erase(gradient);
    asking_in_turn_.erase(gradient);
  }
  if (beyond_ == gradient) beyond_.reset();
  // What came before its turn keeps its charge until the turn comes: from then on it is part of the
  // sum of those that came in order.
  while (slice.turn < contributors_ && slice.states[slice.turn] == State::kEnded) {
    charged_ -= std::exchange(slice.charges[slice.turn++], 0);
  }
  const RowGradient turn{gradient.slice, slice.turn};
  if (slice.turn < contributors_ && state(turn) == State::kAsking) asking_in_turn_.insert(turn);
}

}  // namespace fleet::strategies

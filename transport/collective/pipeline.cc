#include <algorithm>

#include "transport/collective/pipeline_impl.h"

namespace fleet::transport::collective_detail {

void Pipeline::start() {
  for (size_t i = 0; i < std::min(window_, rounds_); ++i) begin_next();
}

void Pipeline::begin_next() {
  Round& round = active_.emplace_back();
  round.number = finished_ + active_.size() - 1;
  if (unused_.empty()) {
    round.messages = group_.peers.messages(id_);
  } else {
    round.messages = std::move(unused_.back());
    unused_.pop_back();
  }
  begin(round);
}

bool Pipeline::advance() {
  while (true) {
    while (relayed_ - finished_ < std::min(2 * window_, active_.size())) {
      Round& round = active_[relayed_ - finished_];
      if (!round.messages->test()) break;
      relay(round);
      ++relayed_;
      if (finished_ + active_.size() < rounds_) begin_next();
    }
    const size_t before = finished_;
    while (finished_ < relayed_ && active_.front().messages->test()) {
      unused_.push_back(std::move(active_.front().messages));
      active_.pop_front();
      ++finished_;
    }
    if (finished_ == before || active_.empty()) return active_.empty();
  }
}

void Pipeline::waits_for(std::vector<int>& ranks) {
  for (Round& round : active_) round.messages->unfinished(ranks);
}

}  // namespace fleet::transport::collective_detail

#include <algorithm>

#include "base/error.h"
#include "transport/sim/sim_events_impl.h"

namespace fleet::transport {

Loop::TimerId SimEvents::add(TimePoint when, SimEvent event) {
  if (free_.empty()) {
    if (places_.size() >> kPlaceBits != 0) {
      throw_error(ErrorCode::kInternal, {.what = "a simulated world has too many events",
                                         .where = "SimEvents::add",
                                         .expected = "at most 2^24 at a time",
                                         .got = "more",
                                         .fix = {}});
    }
    free_.push_back(static_cast<uint32_t>(places_.size()));
    places_.emplace_back();
  }
  const size_t place = free_.back();
  free_.pop_back();
  const Loop::TimerId id = (++last_ << kPlaceBits) | place;
  places_[place].id = id;
  places_[place].event = std::move(event);
  enqueue({when, id});
  return id;
}

void SimEvents::enqueue(Entry entry) {
  if (const int64_t list = list_of(entry.when); list > heap_list_) {
    lists_[list].push_back(entry);
    return;
  }
  heap_.push_back(entry);
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void SimEvents::list_to_heap() {
  const auto first = lists_.begin();
  heap_list_ = first->first;
  heap_ = std::move(first->second);
  lists_.erase(first);
  std::erase_if(heap_, [this](const Entry& entry) { return !has(entry.id); });
  std::make_heap(heap_.begin(), heap_.end(), later);
}

std::optional<std::pair<TimePoint, Loop::TimerId>> SimEvents::next(TimePoint deadline) {
  for (;;) {
    while (heap_.empty() && !lists_.empty()) list_to_heap();
    if (heap_.empty()) return std::nullopt;
    const Entry first = heap_.front();
    const bool there = has(first.id);
    if (there && first.when > deadline) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    if (there) return std::pair(first.when, first.id);
  }
}

SimEvent SimEvents::take(Loop::TimerId id) {
  const size_t place = place_of(id);
  SimEvent event = std::move(places_[place].event);
  free(place);
  return event;
}

void SimEvents::cancel(Loop::TimerId id) {
  if (place_of(id) >= places_.size() || !has(id)) return;
  const SimEvent gone = take(id);
}

void SimEvents::free(size_t place) {
  places_[place].id = 0;
  free_.push_back(static_cast<uint32_t>(place));
}

bool SimEvents::clear() {
  heap_.clear();
  lists_.clear();
  free_.clear();
  const auto gone = std::exchange(places_, {});
  return !gone.empty();
}

}  // namespace fleet::transport

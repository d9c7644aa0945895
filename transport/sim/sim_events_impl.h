// The events of a simulated world, in the order of their time. Private to its sources.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transport/sim/sim_loop.h"

namespace fleet::transport {

constexpr uint32_t kNoLoop = UINT32_MAX;

struct SimEvent {
  uint32_t loop = kNoLoop;
  Loop::Handler handler;
};

// Events of one time come out in the order in which they were added. Those of the next moments are
// in a small heap, all others in lists by time: most are timers of connections, which are looked at
// once, or never when they are cancelled.
class SimEvents {
 public:
  Loop::TimerId add(TimePoint when, SimEvent event);
  // Does nothing when the event is not there any more.
  void cancel(Loop::TimerId id);
  // The next event at or before `deadline`, which keeps its place until take() or cancel().
  std::optional<std::pair<TimePoint, Loop::TimerId>> next(TimePoint deadline);
  bool has(Loop::TimerId id) const { return places_[place_of(id)].id == id; }
  uint32_t loop_of(Loop::TimerId id) const { return places_[place_of(id)].event.loop; }
  SimEvent take(Loop::TimerId id);
  // Comes once more, before those of the same time that were added after it.
  void again(TimePoint when, Loop::TimerId id) { enqueue({when, id}); }
  // False when there was nothing.
  bool clear();

 private:
  // A number that rises with each event, and the place of the event in the low bits.
  static constexpr unsigned kPlaceBits = 24;
  static constexpr Duration kListed = std::chrono::microseconds(32);  // of time, in one list

  struct Entry {
    TimePoint when;
    Loop::TimerId id = 0;
  };
  struct Place {
    Loop::TimerId id = 0;
    SimEvent event;
  };

  static size_t place_of(Loop::TimerId id) { return id & ((uint64_t{1} << kPlaceBits) - 1); }
  static int64_t list_of(TimePoint when) { return when.time_since_epoch() / kListed; }
  static bool later(const Entry& a, const Entry& b) {
    return a.when != b.when ? a.when > b.when : a.id > b.id;
  }
  void enqueue(Entry entry);
  void free(size_t place);
  void list_to_heap();

  uint64_t last_ = 0;
  std::vector<Place> places_;
  std::vector<uint32_t> free_;
  std::vector<Entry> heap_;  // of the list with this number and of all before; some may be gone
  int64_t heap_list_ = 0;
  std::map<int64_t, std::vector<Entry>> lists_;  // by number
};

}  // namespace fleet::transport

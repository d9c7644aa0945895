#include "transpiler/pass_times.h"

#include <algorithm>

namespace fleet::transpiler {

void PassTimes::hear(const PassEvent& event) {
  if (!event.finished) {
    begin_ = clock_.now();
    return;
  }
  const auto same = [&event](const PassTime& time) { return time.pass == event.pass; };
  auto time = std::find_if(times_.begin(), times_.end(), same);
  if (time == times_.end()) {
    time = times_.insert(time, {.pass = event.pass, .purpose = event.purpose});
  }
  ++time->runs;
  time->total += clock_.now() - begin_;
}

}  // namespace fleet::transpiler

// How long passes take, by a clock that the caller brings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

struct PassTime {
  std::string_view pass;
  std::string_view purpose;
  int runs = 0;
  Duration total{0};  // with the verification after each run
};

// Hears of passes: `options.pass_observer = [&](const PassEvent& event) { times.hear(event); }`.
class PassTimes {
 public:
  explicit PassTimes(const Clock& clock) : clock_(clock) {}  // the clock must outlive this

  void hear(const PassEvent& event);
  // In order of the first run of each.
  const std::vector<PassTime>& times() const { return times_; }

 private:
  const Clock& clock_;
  TimePoint begin_;
  std::vector<PassTime> times_;
};

}  // namespace fleet::transpiler

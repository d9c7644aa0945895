#include "base/clock.h"

namespace fleet {
namespace {

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

Clock& steady_clock() {
  // Never destroyed: static objects may ask for the time while they end.
  static auto* const clock = new SteadyClock;
  return *clock;
}

}  // namespace fleet

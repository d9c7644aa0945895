#include "fleet/checkpoints/save_times.h"

#include <algorithm>
#include <array>

namespace fleet {
namespace {

// Between two questions.
constexpr Duration kInterval = std::chrono::milliseconds(200);
constexpr int64_t kLongest = 4096;  // steps
constexpr int64_t kGrowth = 4;      // of the steps, from one to the next

}  // namespace

SaveTimes::SaveTimes(strategies::StrategyRuntime& runtime, bool first, Options options,
                     int64_t step, const Clock& clock)
    : runtime_(runtime),
      first_(first),
      options_(options),
      clock_(clock),
      next_(step + 1),
      questioned_(clock_.now()),
      saved_(questioned_),
      periods_(options.every_steps > 0 ? step / options.every_steps : 0) {}

bool SaveTimes::after_step(int64_t step, bool asked) {
  const bool by_steps = options_.every_steps > 0 && step / options_.every_steps > periods_;
  if (runtime_.in_step()) {
    const bool asks = options_.asked || options_.every > Duration(0);
    const bool agreed = asks && step >= next_ && agree(step, asked);
    return by_steps || agreed;
  }
  if (runtime_.saves_asked() > saves_) return true;
  if ((by_steps || wants(asked)) && !told_) {
    told_ = true;
    runtime_.ask_to_save();
  }
  return false;
}

bool SaveTimes::wants(bool asked) const {
  const bool by_time =
      first_ && options_.every > Duration(0) && clock_.now() - saved_ >= options_.every;
  return asked || by_time;
}

// The first worker's clock says when they ask each other again.
bool SaveTimes::agree(int64_t step, bool asked) {
  const TimePoint now = clock_.now();
  const double elapsed = std::chrono::duration<double>(now - questioned_).count();
  const double wanted = std::chrono::duration<double>(kInterval).count() / std::max(elapsed, 1e-9) *
                        static_cast<double>(interval_);
  const auto most = static_cast<double>(std::min(interval_ * kGrowth, kLongest));
  const std::array<double, 2> mine = {wants(asked) ? 1.0 : 0.0,
                                      first_ ? std::clamp(wanted, 1.0, most) : 0.0};
  const std::vector<double> all = runtime_.all_reduce_training(mine);
  questioned_ = clock_.now();
  // Without the first worker they keep their interval.
  if (all[1] >= 1) interval_ = static_cast<int64_t>(all[1]);
  next_ = step + interval_;
  return all[0] > 0;
}

void SaveTimes::saved(int64_t steps, uint64_t saves) {
  saved_ = clock_.now();
  if (options_.every_steps > 0) periods_ = steps / options_.every_steps;
  saves_ = saves;
  told_ = false;
}

}  // namespace fleet

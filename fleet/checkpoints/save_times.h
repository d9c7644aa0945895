// When a job's workers save: the same decision in all of them.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet {

// Workers in step save in the same step: every so many steps they ask each other whether one of
// them wants to, a few times a second. Others save when one asks all, each between two steps of its
// own. Used by the thread that trains, in every worker alike.
class SaveTimes {
 public:
  struct Options {
    int64_t every_steps = 0;  // 0: never because of steps
    Duration every{0};        // of the first worker's time; 0: never because of time
    bool asked = true;        // a worker may be told to
  };
  // Runtime and clock must outlive it.
  SaveTimes(strategies::StrategyRuntime& runtime, bool first, Options options, int64_t step,
            const Clock& clock = steady_clock());

  // After a step of this worker; `asked`: it has been told to save. Whether all save now.
  bool after_step(int64_t step, bool asked);
  // All have saved; `steps`: the most that a worker has taken, `saves`: the most requests that one
  // has seen.
  void saved(int64_t steps, uint64_t saves);

 private:
  bool wants(bool asked) const;
  bool agree(int64_t step, bool asked);

  strategies::StrategyRuntime& runtime_;
  const bool first_;
  const Options options_;
  const Clock& clock_;
  int64_t interval_ = 1;  // steps between two questions
  int64_t next_;          // step of the next one
  TimePoint questioned_;
  TimePoint saved_;
  int64_t periods_;  // of every_steps, when all saved last
  uint64_t saves_ = 0;
  bool told_ = false;  // this worker has asked all
};

}  // namespace fleet

// Averages of parameters over the steps of a training: programs that put them in the parameters'
// place, and back. All parameters are averaged, the running statistics of batch_norm among them,
// unless ParamAttr::do_model_average (do_model_average_for_mean_and_var) says no.
//
//   ExponentialMovingAverage ema({.decay = 0.99});
//   sgd.minimize(loss);
//   ema.update();                        // appends to the main program
//   …
//   {
//     const auto applied = ema.apply(exe);   // parameters are averages while it lives
//     exe.run(test_program, …);
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fluid/optimizer/optimizer.h"

namespace fleet::fluid::optimizer {

// Runs a program when it goes; moves, does not copy.
template <class Executor>
class Applied {
 public:
  Applied(Executor& executor, const Program& restore) : executor_(&executor), restore_(&restore) {}
  Applied(Applied&& other) noexcept
      : executor_(std::exchange(other.executor_, nullptr)), restore_(other.restore_) {}
  Applied(const Applied&) = delete;
  Applied& operator=(const Applied&) = delete;
  Applied& operator=(Applied&&) = delete;
  ~Applied() noexcept(false) {
    if (executor_ != nullptr) executor_->run(*restore_);
  }

 private:
  Executor* executor_;
  const Program* restore_;
};

// What both averages have in common: the programs, of which the second undoes the first.
class ParameterAverage {
 public:
  // Valid once the average is part of a program.
  const Program& apply_program() const { return apply_; }
  const Program& restore_program() const { return restore_; }

  // Puts the averages in the parameters' place until the result is destroyed. The executor must
  // outlive it.
  template <class Executor>
  [[nodiscard]] Applied<Executor> apply(Executor& executor) const {
    executor.run(apply_);
    return Applied<Executor>(executor, restore_);
  }

 protected:
  // Appends to apply_ and restore_ what swaps a parameter with the variable that `average` makes
  // in apply_.
  void add_swap(const VarDesc& param, const std::function<Variable(Block&)>& average);

 private:
  Program apply_;
  Program restore_;
};

struct ExponentialMovingAverageOptions {
  double decay = 0.999;
  // A step counter t [1] that warms the decay up: min(decay, (1 + t) / (10 + t)).
  Variable thres_steps = {};
  std::string name = {};
};
// e = decay e + (1 - decay) p from e = 0 on, divided by 1 minus the product of all decays when it
// is applied, so that it is a weighted mean of what p has been.
class ExponentialMovingAverage : public ParameterAverage {
 public:
  explicit ExponentialMovingAverage(const ExponentialMovingAverageOptions& options = {});
  // Appends the step of every averaged parameter to the default main program, behind what is
  // there.
  void update();

 private:
  ExponentialMovingAverageOptions options_;
};

struct ModelAverageOptions {
  double average_window_rate = 0.15;
  int64_t min_average_window = 10000;
  int64_t max_average_window = 10000;
};
// The mean over a window of the last steps (fluid/ops/optimize/average.h). The steps are appended
// to the default main program where the object is made.
class ModelAverage : public ParameterAverage {
 public:
  explicit ModelAverage(const ModelAverageOptions& options = {});
};

// Zhang, Lucas, Hinton and Ba 2019: `inner` moves the parameters ("fast"); every k steps the slow
// ones go alpha of the way to them, and the fast ones start from there again. Steps are counted for
// each parameter, by whoever updates it: parameter servers have the slow ones.
struct LookaheadOptions {
  double alpha = 0.5;
  int k = 5;
};
class Lookahead {
 public:
  // `inner` must outlive it.
  Lookahead(Optimizer& inner, const LookaheadOptions& options = {});
  MinimizeResult minimize(const Variable& loss, const MinimizeOptions& options = {});

 private:
  Optimizer& inner_;
  LookaheadOptions options_;
};

}  // namespace fleet::fluid::optimizer

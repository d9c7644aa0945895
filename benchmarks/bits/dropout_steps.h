// Steps of a small net with dropout, whose masks are drawn in one of two ways.
#pragma once

#include "benchmarks/nets.h"

namespace fleet::benchmarks {

enum class DropoutNumbers {
  kKeyed,       // the library's: each element by its key and counter
  kSequential,  // by hand: one number after the other, of sixteen xoshiro128++ side by side
                // (Blackman and Vigna, 2019)
};

// x[32] -> 128 tanh -> dropout -> 128 tanh -> dropout -> 2, 32 rows, SGD. One thread.
class DropoutSteps {
 public:
  explicit DropoutSteps(DropoutNumbers numbers);
  void run() { net_.train(executor_); }

 private:
  Net net_;
  fluid::Executor executor_;
};

}  // namespace fleet::benchmarks

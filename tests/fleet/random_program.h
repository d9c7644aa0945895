// Random small training programs with their data, for tests of jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/philox.h"
#include "fluid/fluid.h"
#include "tests/testing/thread_cluster.h"

namespace fleet::testing {

// Numbers of one seed, drawn one after the other.
class Draw {
 public:
  explicit Draw(uint64_t seed) : key_(RandomKey::of(seed, "random programs")) {}
  double real() { return uniform_double(key_, next_++); }
  int between(int low, int high) { return low + static_cast<int>(real() * (high - low + 1)); }
  bool coin() { return real() < 0.5; }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

using Minimize = std::function<void(const fluid::Variable& loss)>;

// A net of random depth, widths, activations and loss. Without `minimize`, optimizer, decay and
// schedule are drawn too; with it, two servers share one of the weights.
class RandomProgram {
 public:
  RandomProgram(uint64_t seed, fluid::DType dtype, const Minimize& minimize = {});

  // A step's batch has 24 rows.
  TrainingTask task(int steps) const;

 private:
  void minimize_by(Draw& draw, const fluid::Variable& loss) const;
  fluid::Feed feed(int step, int begin, int end) const;

  template <class T>
  fluid::Tensor features(int step, int begin, int end) const;
  template <class T>
  fluid::Tensor labels(int step, int begin, int end) const;

  uint64_t seed_;
  fluid::DType dtype_;
  int features_ = 1;
  int classes_ = 2;
  bool classifies_ = false;
  std::string loss_;
  fluid::Program main_;
  fluid::Program startup_;
};

// The largest difference of two elements; infinite for one that is not a number.
double largest_difference(const Values& a, const Values& b, fluid::DType dtype);

}  // namespace fleet::testing

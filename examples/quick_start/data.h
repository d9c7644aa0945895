// Input of the quick start: the UCI digits, or random rows.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/quick_start/options.h"
#include "fluid/fluid.h"

namespace quick_start {

// What a batch holds is a function of the options and the step, so that every worker cuts its own
// rows out of the same step.
class Data {
 public:
  explicit Data(const Options& options);

  int width() const { return width_; }
  int classes() const { return classes_; }

  // The rows of one step that belong to a worker: x [rows, width] float32, y [rows, 1] int64.
  fluid::Feed batch(int64_t step, int worker = 0, int workers = 1);
  // Rows that training never sees; for random rows, further random rows.
  fluid::Feed test_set();
  // Share of the test rows whose most probable class is the right one.
  double accuracy(const fluid::Tensor& prediction);

 private:
  void load_digits(const std::string& directory);
  const std::vector<int>& order_of_epoch(int epoch);
  void digits_row(int step, int row, float* x, int64_t* y);
  void synthetic_row(int step, int row, float* x, int64_t* y) const;

  Options options_;
  int width_ = 32;
  int classes_ = 2;
  std::vector<float> features_;  // row after row
  std::vector<int64_t> labels_;
  int train_rows_ = 0;
  int epoch_ = -1;  // that order_ belongs to
  std::vector<int> order_;
};

}  // namespace quick_start

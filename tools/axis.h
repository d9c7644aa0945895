// An axis of a chart: a range with round ends, ticks, and the place of a value on it.
#pragma once

#include <string>
#include <vector>

namespace fleet::tools {

class Axis {
 public:
  // Covers [low, high]; the ends are moved out to round numbers. About `ticks` ticks.
  static Axis linear(double low, double high, int ticks);
  // For positive values that span decades, from a round number to a little above `high`: ticks at
  // 1, 2 and 5 times powers of ten.
  static Axis logarithmic(double low, double high);
  // Logarithmic when every value is positive and the largest is 20 times the smallest or more.
  static Axis for_values(const std::vector<double>& values, int ticks);

  double low() const { return low_; }
  double high() const { return high_; }
  bool is_logarithmic() const { return logarithmic_; }
  const std::vector<double>& ticks() const { return ticks_; }

  // 0 at the low end, 1 at the high end.
  double position(double value) const;

 private:
  double low_ = 0;
  double high_ = 1;
  bool logarithmic_ = false;
  std::vector<double> ticks_;
};

// A tick's value without needless digits: 0.05, 1,000.
std::string tick_label(double value);

}  // namespace fleet::tools

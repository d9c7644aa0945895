#include "tools/axis.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"

namespace fleet::tools {
namespace {

constexpr double kLogarithmicFrom = 20;
constexpr double kHeadroom = 1.1;  // above the largest value of a logarithmic axis
constexpr double kRoundFactors[] = {1, 2, 5, 10};

// The smallest of 1, 2, 5 times a power of ten that is at least `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double factor : kRoundFactors) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

double round_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  double result = power;
  for (double factor : kRoundFactors) {
    if (factor * power <= value * (1 + 1e-9)) result = factor * power;
  }
  return result;
}

}  // namespace

Axis Axis::linear(double low, double high, int ticks) {
  if (!(high > low)) high = low + 1;
  const double step = round_up((high - low) / ticks);
  Axis axis;
  axis.low_ = std::floor(low / step) * step;
  const double intervals = std::ceil((high - axis.low_) / step - 1e-9);
  axis.high_ = axis.low_ + intervals * step;
  for (int i = 0; i <= static_cast<int>(intervals); ++i)
    axis.ticks_.push_back(axis.low_ + i * step);
  return axis;
}

Axis Axis::logarithmic(double low, double high) {
  Axis axis;
  axis.logarithmic_ = true;
  axis.low_ = round_down(low);
  axis.high_ = std::max(high, low * 2) * kHeadroom;
  for (double tick = axis.low_; tick <= axis.high_ * (1 + 1e-9); tick = round_up(tick * 1.01)) {
    axis.ticks_.push_back(tick);
  }
  return axis;
}

Axis Axis::for_values(const std::vector<double>& values, int ticks) {
  if (values.empty()) return linear(0, 1, ticks);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (*low > 0 && *high >= *low * kLogarithmicFrom) return logarithmic(*low, *high);
  return linear(std::min(0.0, *low), *high, ticks);
}

double Axis::position(double value) const {
  if (!logarithmic_) return (value - low_) / (high_ - low_);
  return (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_));
}

std::string tick_label(double value) {
  const double rounded = std::abs(value) < 1e-12 ? 0 : std::stod(str_cat(value));
  std::string text = shortest(rounded);
  if (rounded < 1000 || rounded != std::floor(rounded) || rounded >= 1e9) return text;
  for (std::size_t place = text.size() - 3; place > 0 && place < text.size(); place -= 3) {
    text.insert(place, ",");
    if (place < 3) break;
  }
  return text;
}

}  // namespace fleet::tools

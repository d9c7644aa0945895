// Rates of schedules where periods end, against whole-number arithmetic.
#include "fluid/layers/learning_rate_scheduler.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>

#include "base/strings.h"
#include "fluid/executor/executor.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::layers {
namespace {

constexpr double kRate = 0.5;
// Some whose float32 reciprocal is too large, some whose is too small.
constexpr int kPeriods[] = {1, 3, 7, 10, 41, 47, 49, 55, 83, 100};

int whole_periods(int step, int period) {
  return step / period;
}

// Each step's rate up to the third period's end and a step beyond, relative to 1e-6.
void expect_rates(int period, const std::function<Variable()>& schedule,
                  const std::function<double(int step)>& expected) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const std::string rate = schedule().name();
  Executor executor;
  executor.run(startup);
  for (int step = 0; step <= 3 * period + 1; ++step) {
    const double got = static_cast<double>(executor.run(main, {}, {rate})[0].item<float>());
    ASSERT_NEAR(got, expected(step), 1e-6) << "period " << period << ", step " << step;
  }
}

TEST(Schedules, StairsFallAtWholePeriods) {
  for (const int n : kPeriods) {
    expect_rates(
        n, [n] { return exponential_decay(kRate, n, 0.9, true); },
        [n](int step) { return kRate * std::pow(0.9, whole_periods(step, n)); });
    expect_rates(
        n, [n] { return natural_exp_decay(kRate, n, 0.3, true); },
        [n](int step) { return kRate * std::exp(-0.3 * whole_periods(step, n)); });
    expect_rates(
        n, [n] { return inverse_time_decay(kRate, n, 0.5, true); },
        [n](int step) { return kRate / (1 + 0.5 * whole_periods(step, n)); });
  }
}

TEST(Schedules, CyclesOfPolynomialsEndWithTheirLastStep) {
  for (const int n : kPeriods) {
    expect_rates(
        n, [n] { return polynomial_decay(kRate, n, 0.01, 2.0, true); },
        [n](int step) {
          const int cycles = std::max(1, (step + n - 1) / n);
          const double left = 1 - static_cast<double>(step) / (n * cycles);
          return (kRate - 0.01) * left * left + 0.01;
        });
  }
}

TEST(Schedules, EpochsOfACosineBeginAtWholeMultiples) {
  for (const int n : kPeriods) {
    expect_rates(
        n, [n] { return cosine_decay(kRate, n, 5); },
        [n](int step) { return kRate * 0.5 * (1 + std::cos(M_PI * whole_periods(step, n) / 5)); });
  }
}

}  // namespace
}  // namespace fleet::fluid::layers

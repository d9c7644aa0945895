// Bounded staleness (SSP; Ho et al., NIPS 2013) under random stalls: throughput against the law
//   BSP period = E[max over workers of c] + t, ASP period = E[c] + t,
// with c = 1, or kStall with probability kStallShare; and what it is worth in time to a given
// error.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/philox.h"
#include "base/strings.h"

#include "experiments/async_cluster.h"
#include "experiments/experiment.h"

namespace fleet::experiments {
namespace {

constexpr double kStallShare = 0.05;
constexpr double kStall = 10;
constexpr double kExchange = 0.1;
constexpr double kDuration = 700;
// Of a step of all workers: each gradient moves by 1/N of it under every bound, as the mean of
// synchronous training does, so that the bounds differ in nothing but waiting and staleness.
constexpr double kRate = 0.5;
constexpr double kGoodError = 3.0;
constexpr double kEvaluateEvery = 0.5;
constexpr uint32_t kUnbounded = 0xffffffff;
constexpr uint32_t kBounds[] = {0, 1, 3, 10, kUnbounded};

struct Point {
  Spread throughput;     // gradients in a unit of time, relative to bound 0
  Spread time_to_error;  // the whole run where it never got there
  int reached = 0;
  uint64_t largest_gap = 0;
  double mean_staleness = 0;
};

std::string bound_name(uint32_t bound) {
  if (bound == kUnbounded) return "ASP";
  return bound == 0 ? "BSP" : str_cat("SSP ", bound);
}

double predicted_gain(uint32_t workers) {
  const double none = std::pow(1 - kStallShare, workers);
  const double slowest = 1 + (1 - none) * (kStall - 1);
  const double mean = 1 + kStallShare * (kStall - 1);
  return (slowest + kExchange) / (mean + kExchange);
}

// The first moment at which the error is good; 0 when it never is.
double time_to_good_error(const AsyncOutcome& outcome) {
  for (const auto& [time, error] : outcome.errors) {
    if (error <= kGoodError) return time;
  }
  return 0;
}

AsyncOutcome run_one(Model& model, const ClassificationData& data, uint32_t workers, uint32_t bound,
                     uint64_t seed, const ExperimentOptions& options) {
  AsyncRun run{.workers = workers,
               .rate = (options.rate > 0 ? options.rate : kRate) / workers,
               .seed = seed,
               .duration = kDuration * options.length,
               .exchange_time = kExchange,
               .evaluate_every = kEvaluateEvery};
  if (bound != kUnbounded) run.staleness_bound = bound;
  run.step_time = [seed](uint32_t worker, uint64_t clock) {
    const RandomKey key = RandomKey::of(seed, str_cat("stall ", worker));
    return uniform_double(key, clock) < kStallShare ? kStall : 1.0;
  };
  return run_async(model, data, run);
}

std::vector<Point> run_bounds(const ClassificationData& data, const ExperimentOptions& options,
                              uint32_t workers) {
  std::vector<Point> points;
  std::vector<double> base;
  for (const uint32_t bound : kBounds) {
    const auto seeds = static_cast<size_t>(options.seeds);
    std::vector<AsyncOutcome> outcomes(seeds);
    for_each_seed(data, options, [&](Model& model, size_t index, uint64_t seed) {
      outcomes[index] = run_one(model, data, workers, bound, seed, options);
    });
    std::vector<double> throughput;
    std::vector<double> times;
    uint64_t gap = 0;
    double staleness = 0;
    int reached = 0;
    for (const AsyncOutcome& outcome : outcomes) {
      throughput.push_back(static_cast<double>(outcome.gradients) / outcome.time);
      const double time = time_to_good_error(outcome);
      reached += time > 0;
      times.push_back(time > 0 ? time : outcome.time);
      gap = std::max(gap, outcome.largest_gap);
      staleness += outcome.staleness.mean() / static_cast<double>(seeds);
    }
    if (bound == 0) base = throughput;
    for (size_t i = 0; i < seeds; ++i) throughput[i] /= base[i];
    points.push_back({.throughput = Spread(throughput),
                      .time_to_error = Spread(times),
                      .reached = reached,
                      .largest_gap = gap,
                      .mean_staleness = staleness});
  }
  return points;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

void add_gates(Findings& findings, uint32_t workers, const std::vector<Point>& points,
               const ExperimentOptions& options) {
  bool faster = true;
  bool sooner = true;
  for (size_t i = 1; i < points.size(); ++i) {
    faster = faster && points[i].throughput.mean > points[i - 1].throughput.mean;
    sooner = sooner && points[i].time_to_error.mean < points[i - 1].time_to_error.mean;
  }
  const std::string where = str_cat("N=", workers, ": ");
  findings.gates.push_back({where + "throughput rises with the bound",
                            str_cat("1 to ", number(points.back().throughput.mean)), faster});
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    findings.gates.push_back({str_cat(where, bound_name(kBounds[i]),
                                      " lets no worker go further"
                                      " ahead than its bound and the step under way"),
                              str_cat(points[i].largest_gap, " of at most ", kBounds[i] + 1),
                              points[i].largest_gap <= kBounds[i] + 1});
  }
  const double law = predicted_gain(workers);
  findings.gates.push_back(
      {where + "ASP over BSP is within 10 % of the law",
       str_cat(number(points.back().throughput.mean), " against ", number(law)),
       std::abs(points.back().throughput.mean / law - 1) <= 0.1});
  if (options.order_only) return;
  findings.gates.push_back({str_cat(where, "time to ", kGoodError, " % error falls with the bound"),
                            str_cat(number(points.front().time_to_error.mean), " to ",
                                    number(points.back().time_to_error.mean)),
                            sooner});
}

}  // namespace

Findings run_bounded_staleness(const ClassificationData& data, const ExperimentOptions& options) {
  Findings findings{
      .name = "bounded_staleness",
      .title = str_cat("Bounded staleness on ", data.name, ", ", options.seeds,
                       " seeds; a step takes 1, and ", kStall, " with probability ", kStallShare),
      .table = {{"workers", "bound", "throughput", "predicted", "time to 3 %", "reached",
                 "largest gap", "mean staleness"}},
      .notes = {},
      .gates = {},
      .plots = {}};
  tools::LineChart plot{.title = "Throughput under bounded staleness",
                        .x = "bound (ASP at 20)",
                        .y = "gradients a second, relative to BSP",
                        .curves = {}};
  for (const uint32_t workers : {4U, 8U}) {
    const std::vector<Point> points = run_bounds(data, options, workers);
    tools::Curve& curve = plot.curves.emplace_back();
    curve.name = str_cat("N=", workers);
    for (size_t i = 0; i < points.size(); ++i) {
      const Point& point = points[i];
      const bool unbounded = kBounds[i] == kUnbounded;
      findings.table.push_back(
          {std::to_string(workers), bound_name(kBounds[i]), point.throughput.to_string(),
           unbounded ? number(predicted_gain(workers)) : "", number(point.time_to_error.mean),
           str_cat(point.reached, "/", options.seeds), std::to_string(point.largest_gap),
           number(point.mean_staleness)});
      curve.points.emplace_back(unbounded ? 20 : kBounds[i], point.throughput.mean);
    }
    add_gates(findings, workers, points, options);
  }
  findings.plots.push_back(std::move(plot));
  return findings;
}

}  // namespace fleet::experiments

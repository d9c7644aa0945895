// LocalSGD with fixed and adaptive intervals (Stich, ICLR 2019; Wang and Joshi, MLSys 2019): how
// many averages the same error takes.
#include <cmath>
#include <cstdio>

#include "base/strings.h"

#include "experiments/experiment.h"
#include "experiments/local_sgd_cluster.h"

namespace fleet::experiments {
namespace {

using strategies::LocalSgdOptions;
using strategies::LocalSgdRule;

constexpr int64_t kEpochs = 100;
constexpr double kRate = 0.1;
constexpr int kFirstInterval = 16;  // tau_0 of the adaptive rules

struct Variant {
  std::string name;
  LocalSgdOptions schedule;
};

LocalSgdOptions every(int interval) {
  LocalSgdOptions options;
  options.interval = interval;
  return options;
}

LocalSgdOptions ada_comm(bool with_rate) {
  LocalSgdOptions options = every(kFirstInterval);
  options.rule = LocalSgdRule::kAdaComm;
  options.with_learning_rate = with_rate;
  options.shrink = 1;
  return options;
}

std::vector<Variant> variants() {
  return {{"H=1", every(1)},
          {"H=8", every(8)},
          {"H=16", every(16)},
          {"H=32", every(32)},
          {"AdaComm", ada_comm(true)},
          {"AdaComm, no rates", ada_comm(false)},
          {"paddle, k=16", LocalSgdOptions::paddle(16)},
          {"paddle, k=1", LocalSgdOptions::paddle(1)}};
}
enum VariantIndex : size_t { kH1, kH8, kH16, kH32, kAdaComm, kNoRates, kPaddle16, kPaddle1 };

struct Result {
  Spread error{{}};
  Spread loss{{}};
  Spread averages{{}};
};

Result run_variant(const ClassificationData& data, const ExperimentOptions& options,
                   const Variant& variant) {
  const auto seeds = static_cast<size_t>(options.seeds);
  std::vector<double> errors(seeds);
  std::vector<double> losses(seeds);
  std::vector<double> averages(seeds);
  const double epochs = static_cast<double>(kEpochs) * options.length;
  for_each_seed(data, options, [&](Model& model, size_t index, uint64_t seed) {
    const auto outcome = run_local_sgd(model, data,
                                       {.rate = options.rate > 0 ? options.rate : kRate,
                                        .epochs = std::max<int64_t>(1, std::llround(epochs)),
                                        .seed = seed,
                                        .schedule = variant.schedule});
    errors[index] = outcome.test_error;
    losses[index] = outcome.train_loss;
    averages[index] = static_cast<double>(outcome.averages);
  });
  return {Spread(errors), Spread(losses), Spread(averages)};
}

std::string text_of(const char* format, double first, double second) {
  char text[80];
  std::snprintf(text, sizeof text, format, first, second);
  return text;
}

void add_gates(Findings& findings, const std::vector<Result>& results,
               const ExperimentOptions& options) {
  const auto saved = [&](VariantIndex index) {
    return results[kH1].averages.mean / results[index].averages.mean;
  };
  const auto error = [&](VariantIndex index) { return results[index].error.mean; };
  findings.gates.push_back(
      {"AdaComm in the paper's form averages at most a third as often",
       text_of("%.1f times fewer, error %.2f %%", saved(kAdaComm), error(kAdaComm)),
       saved(kAdaComm) >= 3});
  findings.gates.push_back({"AdaComm saves more than Paddle's form",
                            text_of("%.1f against %.1f times", saved(kAdaComm), saved(kPaddle16)),
                            saved(kAdaComm) > saved(kPaddle16)});
  const bool rises = results[kH1].loss.mean < results[kH8].loss.mean &&
                     results[kH8].loss.mean < results[kH16].loss.mean &&
                     results[kH16].loss.mean < results[kH32].loss.mean;
  findings.gates.push_back(
      {"the training loss rises with the interval",
       text_of("%.5f to %.5f", results[kH1].loss.mean, results[kH32].loss.mean), rises});
  if (options.order_only) return;
  findings.gates.push_back({"H=8 within 0.3 points of H=1",
                            text_of("%.2f against %.2f", error(kH8), error(kH1)),
                            error(kH8) <= error(kH1) + 0.3});
  findings.gates.push_back(
      {"H=8 averages an eighth as often",
       text_of("%.0f against %.0f", results[kH8].averages.mean, results[kH1].averages.mean),
       saved(kH8) >= 7.9});
}

}  // namespace

Findings run_local_sgd_intervals(const ClassificationData& data, const ExperimentOptions& options) {
  Findings findings{.name = "local_sgd",
                    .title = str_cat("LocalSGD on ", data.name, ", 8 workers, momentum 0.9, ",
                                     options.seeds, " seeds"),
                    .table = {{"variant", "test error, %", "training loss", "averages", "saved"}},
                    .notes = {},
                    .gates = {},
                    .plots = {}};
  tools::LineChart plot{.title = "LocalSGD: error against averages",
                        .x = "averages",
                        .y = "test error, %",
                        .curves = {}};
  std::vector<Result> results;
  for (const Variant& variant : variants()) {
    const Result& result = results.emplace_back(run_variant(data, options, variant));
    findings.table.push_back(
        {variant.name, result.error.to_string(),
         text_of("%.5f +- %.5f", result.loss.mean, result.loss.deviation),
         text_of("%.0f", result.averages.mean, 0),
         text_of("%.1fx", results[0].averages.mean / result.averages.mean, 0)});
    plot.curves.push_back({variant.name, {{result.averages.mean, result.error.mean}}});
  }
  add_gates(findings, results, options);
  findings.plots.push_back(std::move(plot));
  return findings;
}

}  // namespace fleet::experiments

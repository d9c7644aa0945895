// Deep gradient compression (Lin et al., ICLR 2018) through the optimizer of real jobs: the error
// when each of 4 shards sends a thousandth of its gradient, against whole gradients.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

#include "experiments/batches.h"
#include "experiments/experiment.h"

namespace fleet::experiments {
namespace {

using fluid::optimizer::DGCMomentum;
using fluid::optimizer::DGCMomentumOptions;

constexpr int kShards = 4;
constexpr int64_t kBatch = 64;
constexpr int64_t kEpochs = 60;
constexpr double kFinal = 0.999;
// Each rule trains at each of these, and is judged by its best.
constexpr double kRates[] = {0.025, 0.05, 0.1, 0.2};

// What is kept back over the warm-up of the paper.
const std::vector<double> kWarmUp = {0.75, 0.9375, 0.984375, 0.996, kFinal};

struct Variant {
  std::string name;
  std::vector<double> sparsity;  // none: whole gradients
  double warm_up = 0;            // of the steps
};

std::vector<Variant> variants() {
  return {{"whole gradients", {}, 0},
          {"0.1 %, warm-up", kWarmUp, 0.2},
          {"0.1 % at once", {kFinal}, 0},
          {"1 % at once", {0.99}, 0}};
}

// One training of one seed; the error in percent of the test rows.
double train(Model& model, const ClassificationData& data, const ExperimentOptions& options,
             const Variant& variant, double rate, uint64_t seed) {
  Batches batches(data.train_rows(), kBatch, seed);
  const double epochs = static_cast<double>(kEpochs) * options.length;
  const int64_t steps = std::max<int64_t>(1, std::llround(epochs)) * batches.per_epoch();
  fluid::Program main;
  fluid::Program startup;
  {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    DGCMomentumOptions how{.learning_rate = rate};
    how.min_numel = variant.sparsity.empty() ? INT64_MAX : 500;
    if (!variant.sparsity.empty()) how.sparsity = variant.sparsity;
    how.rampup_step =
        std::max<int64_t>(1, std::llround(variant.warm_up * static_cast<double>(steps)));
    DGCMomentum(how).minimize(append_classifier(data, options.hidden).loss);
  }
  fluid::Executor executor(fluid::CPUPlace(), {.logical_shards = kShards, .threads = 1});
  executor.run(startup);
  model.write(model.initial(seed), executor.scope());
  for (int64_t step = 0; step < steps; ++step) executor.run(main, model.batch(batches.next()));
  return model.test_error(model.read(executor.scope()));
}

struct Result {
  double rate = 0;
  std::optional<Spread> error;  // at the best of the rates
};

Result run_variant(const ClassificationData& data, const ExperimentOptions& options,
                   const Variant& variant) {
  Result best;
  for (const double rate : kRates) {
    std::vector<double> errors(static_cast<size_t>(options.seeds));
    for_each_seed(data, options, [&](Model& model, size_t index, uint64_t seed) {
      errors[index] = train(model, data, options, variant, rate, seed);
    });
    const Spread error(errors);
    if (!best.error || error.mean < best.error->mean) best = {rate, error};
  }
  return best;
}

std::string text_of(const char* format, double first, double second = 0) {
  char text[80];
  std::snprintf(text, sizeof text, format, first, second);
  return text;
}

}  // namespace

Findings run_compressed_gradients(const ClassificationData& data,
                                  const ExperimentOptions& options) {
  Findings findings{.name = "compressed_gradients",
                    .title = str_cat("Deep gradient compression on ", data.name, ", ", kShards,
                                     " shards, momentum 0.9, ", options.seeds,
                                     " seeds, each at the best of ", std::size(kRates), " rates"),
                    .table = {{"variant", "rate", "test error, %"}},
                    .notes = {},
                    .gates = {},
                    .plots = {}};
  std::vector<Result> results;
  for (const Variant& variant : variants()) {
    const Result& result = results.emplace_back(run_variant(data, options, variant));
    findings.table.push_back({variant.name, text_of("%g", result.rate), result.error->to_string()});
  }
  const double whole = results[0].error->mean;
  const double warm = results[1].error->mean;
  findings.gates.push_back({"0.1 % with a warm-up within 0.5 points of whole gradients",
                            text_of("%.2f against %.2f", warm, whole), warm <= whole + 0.5});
  return findings;
}

}  // namespace fleet::experiments

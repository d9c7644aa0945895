// Workers that train alone and exchange differences (GEO; EASGD of Zhang, Choromanska and LeCun,
// NIPS 2015) against a push of every gradient: error and messages. The arithmetic of the exchange
// is that of real workers (strategies/parameter_server/protocol/local_exchange.h).
#include <cmath>
#include <cstdio>

#include "base/strings.h"
#include "strategies/parameter_server/protocol/local_exchange.h"

#include "experiments/async_cluster.h"
#include "experiments/batches.h"
#include "experiments/experiment.h"

namespace fleet::experiments {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr int64_t kBatch = 16;
constexpr int64_t kGradients = 6000;
constexpr double kRate = 0.3;

enum class Exchange { kEveryGradient, kGeo, kGeoUndivided, kElastic };

struct Variant {
  std::string name;
  Exchange exchange;
  int64_t every;  // local steps
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {{"ASGD", Exchange::kEveryGradient, 1},
                                           {"GEO k=10", Exchange::kGeo, 10},
                                           {"GEO k=25", Exchange::kGeo, 25},
                                           {"GEO k=100", Exchange::kGeo, 100},
                                           {"EASGD tau=10", Exchange::kElastic, 10},
                                           {"EASGD tau=100", Exchange::kElastic, 100},
                                           {"EASGD tau=400", Exchange::kElastic, 400},
                                           {"undivided k=10", Exchange::kGeoUndivided, 10},
                                           {"undivided k=25", Exchange::kGeoUndivided, 25}};
  return all;
}
enum VariantIndex : size_t { kAsgd, kGeo10, kGeo25, kGeo100, kTau10, kTau100, kTau400, kUndivided };

struct Outcome {
  double test_error = 0;
  int64_t messages = 0;
};

struct Worker {
  Weights weights;
  Weights old;  // the server's value as received last
  int64_t steps = 0;
};

void exchange(const Variant& variant, Worker& worker, Weights& server, Weights& difference) {
  if (variant.exchange == Exchange::kElastic) {
    strategies::easgd_difference<float>(worker.weights, server,
                                        strategies::easgd_alpha(0, kWorkers), difference);
  } else {
    const uint32_t divisor = variant.exchange == Exchange::kGeo ? kWorkers : 1;
    strategies::geo_difference<float>(worker.weights, worker.old, divisor, difference);
  }
  for (size_t i = 0; i < server.size(); ++i) server[i] += difference[i];
  if (variant.exchange != Exchange::kElastic) {
    strategies::geo_receive<float>(server, worker.weights, worker.old);
  }
}

Outcome train(Model& model, const ClassificationData& data, const Variant& variant, double rate,
              int64_t gradients, uint64_t seed) {
  if (variant.exchange == Exchange::kEveryGradient) {
    const AsyncOutcome outcome = run_async(model, data,
                                           {.workers = kWorkers,
                                            .rate = rate,
                                            .batch_size = kBatch,
                                            .seed = seed,
                                            .gradients = gradients});
    return {outcome.test_error, outcome.gradients};
  }
  Batches batches(data.train_rows(), kBatch, seed);
  Weights server = model.initial(seed);
  std::vector<Worker> workers(kWorkers, Worker{server, server, 0});
  Weights gradient(server.size());
  Outcome outcome;
  for (int64_t done = 0; done < gradients; ++done) {
    Worker& worker = workers[static_cast<size_t>(done) % kWorkers];
    model.gradient(worker.weights, batches.next(), gradient);
    const auto step = static_cast<float>(stepped_rate(rate, done, gradients));
    for (size_t i = 0; i < gradient.size(); ++i) worker.weights[i] -= step * gradient[i];
    if (++worker.steps % variant.every == 0) {
      exchange(variant, worker, server, gradient);
      ++outcome.messages;
    }
  }
  outcome.test_error = model.test_error(server);
  return outcome;
}

std::string text_of(const char* format, double first, double second) {
  char text[80];
  std::snprintf(text, sizeof text, format, first, second);
  return text;
}

void add_gates(Findings& findings, const std::vector<Spread>& errors,
               const std::vector<int64_t>& messages, bool order_only) {
  findings.gates.push_back({"GEO k=10 sends a tenth of the messages",
                            str_cat(messages[kGeo10], " against ", messages[kAsgd]),
                            10 * messages[kGeo10] <= messages[kAsgd]});
  findings.gates.push_back(
      {"differences that are not divided fail",
       text_of("%.2f %% against %.2f %%", errors[kUndivided].mean, errors[kGeo10].mean),
       errors[kUndivided].mean > errors[kGeo10].mean + (order_only ? 0 : 1)});
  if (order_only) return;
  findings.gates.push_back(
      {"GEO k=10 within 0.3 points of ASGD",
       text_of("%.2f %% against %.2f %%", errors[kGeo10].mean, errors[kAsgd].mean),
       errors[kGeo10].mean <= errors[kAsgd].mean + 0.3});
  findings.gates.push_back(
      {"EASGD tau=100 within 0.5 points of ASGD",
       text_of("%.2f %% against %.2f %%", errors[kTau100].mean, errors[kAsgd].mean),
       errors[kTau100].mean <= errors[kAsgd].mean + 0.5});
}

}  // namespace

Findings run_elastic(const ClassificationData& data, const ExperimentOptions& options) {
  Findings findings{.name = "elastic",
                    .title = str_cat("Exchanges of differences on ", data.name, ", ", kWorkers,
                                     " workers, ", options.seeds, " seeds"),
                    .table = {{"variant", "test error, %", "messages"}},
                    .notes = {},
                    .gates = {},
                    .plots = {}};
  tools::LineChart plot{.title = "Error against messages, " + data.name,
                        .x = "messages",
                        .y = "test error, %",
                        .curves = {}};
  const double rate = options.rate > 0 ? options.rate : kRate;
  const int64_t gradients = std::llround(static_cast<double>(kGradients) * options.length);
  std::vector<Spread> errors;
  std::vector<int64_t> messages;
  for (const Variant& variant : variants()) {
    std::vector<double> values(static_cast<size_t>(options.seeds));
    std::vector<int64_t> sent(values.size());
    for_each_seed(data, options, [&](Model& model, size_t index, uint64_t seed) {
      const Outcome outcome = train(model, data, variant, rate, gradients, seed);
      values[index] = outcome.test_error;
      sent[index] = outcome.messages;
    });
    errors.emplace_back(values);
    messages.push_back(sent[0]);
    findings.table.push_back(
        {variant.name, errors.back().to_string(), std::to_string(messages.back())});
    plot.curves.push_back(
        {variant.name, {{static_cast<double>(messages.back()), errors.back().mean}}});
  }
  add_gates(findings, errors, messages, options.order_only);
  findings.plots.push_back(std::move(plot));
  return findings;
}

}  // namespace fleet::experiments

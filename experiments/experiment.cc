#include "experiments/experiment.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/strings.h"
#include "tools/text_table.h"

namespace fleet::experiments {

Spread::Spread(const std::vector<double>& values) {
  if (values.empty()) return;
  const auto count = static_cast<double>(values.size());
  mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  deviation = values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  least = *std::min_element(values.begin(), values.end());
  most = *std::max_element(values.begin(), values.end());
}

std::string Spread::to_string() const {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f +- %.2f", mean, deviation);
  return text;
}

bool Findings::holds() const {
  return std::all_of(gates.begin(), gates.end(), [](const Gate& gate) { return gate.holds; });
}

void for_each_seed(const ClassificationData& data, const ExperimentOptions& options,
                   const std::function<void(Model& model, size_t index, uint64_t seed)>& run) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = std::min(options.threads > 0 ? options.threads : cores, options.seeds);
  std::atomic<int> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      Model model(data, options.hidden);
      for (int i = next++; i < options.seeds; i = next++) {
        run(model, static_cast<size_t>(i), options.first_seed + static_cast<uint64_t>(i));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  pool.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  if (error) std::rethrow_exception(error);
}

const std::vector<Experiment>& all_experiments() {
  static const std::vector<Experiment> all = {
      {"dc_asgd", "delay compensation keeps asynchronous training right where plain ASGD fails",
       run_dc_asgd},
      {"bounded_staleness", "throughput follows the law of bounded staleness",
       run_bounded_staleness},
      {"elastic", "GEO and EASGD reach ASGD's error with a tenth of the messages", run_elastic},
      {"local_sgd", "LocalSGD reaches the synchronous error with an eighth of the averages",
       run_local_sgd_intervals},
      {"compressed_gradients", "gradients of which 0.1 % travel train as well as whole ones",
       run_compressed_gradients},
  };
  return all;
}

std::string to_text(const Findings& findings) {
  std::ostringstream text;
  text << findings.title << "\n\n";
  tools::TextTable table(findings.table.at(0));
  for (size_t i = 1; i < findings.table.size(); ++i) table.add_row(findings.table[i]);
  table.print(text);
  text << "\n";
  for (const std::string& note : findings.notes) text << note << "\n";
  for (const Gate& gate : findings.gates) {
    text << (gate.holds ? "holds  " : "FAILS  ") << gate.claim << ": " << gate.measured << "\n";
  }
  return std::move(text).str();
}

std::string to_json(const Findings& findings) {
  nlohmann::ordered_json gates = nlohmann::ordered_json::array();
  for (const Gate& gate : findings.gates) {
    gates.push_back({{"claim", gate.claim}, {"measured", gate.measured}, {"holds", gate.holds}});
  }
  const nlohmann::ordered_json json = {{"name", findings.name},   {"title", findings.title},
                                       {"table", findings.table}, {"notes", findings.notes},
                                       {"gates", gates},          {"holds", findings.holds()}};
  return json.dump(2) + "\n";
}

}  // namespace fleet::experiments

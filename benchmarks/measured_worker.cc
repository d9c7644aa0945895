// One process of the jobs that bench_jobs and bench_modes measure: a small net, fed with rows made
// beforehand. Without a role in its environment it trains alone.

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/nets.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

struct Options {
  int steps = 0;
  int rows = 0;
  int inputs = 0;
  int hidden = 0;
  int sleep_ms = 0;  // before each step
  int threads = 1;   // that train
  std::string strategy;
  std::string optimizer;
  std::string net;
  bool spans = false;
  std::string report;
};

double seconds_since_boot() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double cpu_us() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return 1e6 * static_cast<double>(used.tv_sec) + 1e-3 * static_cast<double>(used.tv_nsec);
}

fluid::Feed rows_of(const Options& options) {
  if (!options.net.empty()) return fleet::benchmarks::make_batch(options.net, options.rows);
  fluid::Tensor x(fluid::DType::kFloat32, {options.rows, options.inputs});
  fluid::Tensor y(fluid::DType::kInt64, {options.rows, 1});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 0.5f;
  for (int64_t i = 0; i < y.numel(); ++i) y.data<int64_t>()[i] = 1;
  return {{"x", x}, {"y", y}};
}

// VmHWM of this process.
double peak_mb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    double kib = 0;
    status >> kib;
    return kib * 1024e-6;
  }
  return 0;
}

int serve(const Options& options) {
  fleet::run_server();
  std::ofstream file(options.report + ".server" + std::to_string(fleet::server_index()));
  file << "{\"peak_mb\": " << peak_mb() << ", \"cpu_us\": " << cpu_us() << "}\n";
  return file.flush() ? 0 : 1;
}

struct Measured {
  int steps = 0;
  double seconds = 0;
  double cpu = 0;
  std::vector<double> spans;  // begin and end of each step
};

int write_report(const Options& options, const Measured& measured) {
  const double steps = std::max(1, measured.steps);
  std::ofstream file(options.report + ".worker" + std::to_string(fleet::worker_index()));
  file.precision(12);
  file << "{\"steps_per_s\": " << measured.steps / measured.seconds
       << ", \"cpu_us_per_step\": " << measured.cpu / steps << ", \"spans\": [";
  for (size_t i = 0; i < measured.spans.size(); ++i) {
    file << (i == 0 ? "" : ", ") << measured.spans[i];
  }
  file << "]}\n";
  return file.flush() ? 0 : 1;
}

strategies::DistributedStrategy strategy_of(const std::string& name) {
  if (name.empty()) return {};
  if (name == "async") return strategies::AsyncStrategy{};
  if (name == "half_async") return strategies::HalfAsyncStrategy{};
  if (name == "geo100") return strategies::GeoStrategy{.update_frequency = 100};
  if (name == "sync_slices16") return strategies::SyncStrategy{.slices_per_server = 16};
  if (name == "localsgd8") return strategies::LocalSgdStrategy{{.interval = 8}};
  throw po::validation_error(po::validation_error::invalid_option_value, "strategy", name);
}

std::unique_ptr<fluid::optimizer::Optimizer> optimizer_of(const std::string& name) {
  namespace optimizer = fluid::optimizer;
  if (name == "sgd")
    return std::make_unique<optimizer::SGD>(optimizer::SGDOptions{.learning_rate = 0.01});
  if (name == "momentum")
    return std::make_unique<optimizer::Momentum>(optimizer::MomentumOptions{.learning_rate = 0.01});
  if (name == "dgc")
    return std::make_unique<optimizer::DGCMomentum>(
        optimizer::DGCMomentumOptions{.learning_rate = 0.01});
  throw po::validation_error(po::validation_error::invalid_option_value, "optimizer", name);
}

// What one thread measured of its steps, the first of them not.
Measured measure(const Options& options, fluid::Executor& exe, const fluid::Program& program,
                 const fluid::Variable& cost) {
  const auto feed = rows_of(options);
  const int warmup = std::min(20, options.steps / 2);
  Measured measured;
  Clock::time_point start;
  for (int step = 0; step < options.steps; ++step) {
    if (step == warmup) {
      start = Clock::now();
      measured.cpu = cpu_us();
    }
    if (options.sleep_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options.sleep_ms));
    }
    if (options.spans) measured.spans.push_back(seconds_since_boot());
    exe.run(program, feed, {cost});
    if (options.spans) measured.spans.push_back(seconds_since_boot());
  }
  measured.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  measured.cpu = cpu_us() - measured.cpu;
  measured.steps = options.steps - warmup;
  return measured;
}

fluid::Variable loss_of(const Options& options) {
  namespace layers = fluid::layers;
  if (!options.net.empty()) return fleet::benchmarks::append_net(options.net);
  const auto x = layers::data("x", {options.inputs}, fluid::DType::kFloat32);
  const auto y = layers::data("y", {1}, fluid::DType::kInt64);
  const auto first = layers::fc(x, options.hidden, {.act = "tanh"});
  const auto hidden = layers::fc(first, options.hidden, {.act = "tanh"});
  const auto prediction = layers::fc(hidden, 2, {.act = "softmax"});
  return layers::mean(layers::cross_entropy(prediction, y));
}

int train(const Options& options) {
  const auto cost = loss_of(options);
  const auto plain = optimizer_of(options.optimizer);

  fleet::init(role_maker::PaddleCloudRoleMaker());
  auto optimizer = fleet::distributed_optimizer(*plain, strategy_of(options.strategy));
  optimizer.minimize(cost);
  if (fleet::is_server()) return serve(options);
  fleet::init_worker();

  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  const fluid::Program& program = fluid::default_main_program();
  Measured measured;
  if (options.threads == 1) {
    measured = measure(options, exe, program, cost);
  } else {
    strategies::run_trainer_threads(exe, program, static_cast<uint32_t>(options.threads),
                                    [&](uint32_t thread, fluid::Executor& own) {
                                      const Measured mine = measure(options, own, program, cost);
                                      if (thread == 0) measured = mine;
                                    });
  }
  fleet::stop_worker();
  return write_report(options, measured);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  po::options_description flags("Options");
  auto add = flags.add_options();
  add("steps", po::value(&options.steps)->default_value(100),
      "steps, the first of them unmeasured");
  add("rows", po::value(&options.rows)->default_value(32), "rows of each worker and step");
  add("inputs", po::value(&options.inputs)->default_value(32), "width of the input");
  add("hidden", po::value(&options.hidden)->default_value(128), "width of the two hidden layers");
  add("net", po::value(&options.net)->default_value(""),
      "a net of benchmarks/nets.h in place of inputs and hidden layers");
  add("sleep_ms", po::value(&options.sleep_ms)->default_value(0), "sleep before each step");
  add("threads", po::value(&options.threads)->default_value(1),
      "threads that train, each with rows of its own (with CPU_NUM as many)");
  add("optimizer", po::value(&options.optimizer)->default_value("sgd"), "sgd, momentum or dgc");
  add("strategy", po::value(&options.strategy)->default_value(""),
      "sync_slices16, async, half_async, geo100 or localsgd8; else the default of the job's kind");
  add("spans", po::bool_switch(&options.spans), "report when each step began and ended");
  add("report", po::value(&options.report)->default_value("report"), "files that it writes");
  add("help", "print this text");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    po::notify(given);
    if (given.count("help") != 0) {
      std::cout << "Trains a small net and reports how fast.\n\n" << flags << "\n";
      return 0;
    }
    return train(options);
  } catch (const po::error& error) {
    std::fprintf(stderr, "error: %s\n  fix: see --help\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

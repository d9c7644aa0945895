// One process of the jobs that benchmarks measure: a net, fed with rows made beforehand. Without a
// role in its environment it trains alone.

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
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
  int warm_up = 0;   // steps
  std::string strategy;
  std::string optimizer;
  std::string net;
  std::string checkpoints;  // their folder; empty: none
  int checkpoint_every = 0;
  int saves = 0;
  bool spans = false;
  bool trace = false;
  std::string report;
};

double seconds_since_boot() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// What this process does, and when: lines "ATTEMPT WHAT NUMBER SECONDS", which stay when it is
// killed and which the next attempt goes on with (benchmarks/checkpoints/restart_trace.h).
class Trace {
 public:
  void open(const std::string& file) {
    file_.open(file, std::ios::app);
    file_.precision(12);
  }
  void write(const char* what, int64_t number, double seconds) {
    if (!file_.is_open()) return;
    const char* attempt = std::getenv("FLEET_RESTARTS");
    file_ << (attempt == nullptr ? "0" : attempt) << ' ' << what << ' ' << number << ' ' << seconds
          << std::endl;
  }

 private:
  std::ofstream file_;
};

double cpu_us() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return 1e6 * static_cast<double>(used.tv_sec) + 1e-3 * static_cast<double>(used.tv_nsec);
}

std::vector<fluid::Feed> batches_of(const Options& options) {
  if (!options.net.empty()) return fleet::benchmarks::make_batches(options.net, options.rows);
  fluid::Tensor x(fluid::DType::kFloat32, {options.rows, options.inputs});
  fluid::Tensor y(fluid::DType::kInt64, {options.rows, 1});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 0.5f;
  for (int64_t i = 0; i < y.numel(); ++i) y.data<int64_t>()[i] = 1;
  return {{{"x", x}, {"y", y}}};
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
  std::vector<double> save_s;
  std::vector<double> load_s;
};

void write_list(std::ofstream& file, const char* name, const std::vector<double>& values) {
  file << ", \"" << name << "\": [";
  for (size_t i = 0; i < values.size(); ++i) file << (i == 0 ? "" : ", ") << values[i];
  file << "]";
}

int write_report(const Options& options, const Measured& measured) {
  const double steps = std::max(1, measured.steps);
  std::ofstream file(options.report + ".worker" + std::to_string(fleet::worker_index()));
  file.precision(12);
  file << "{\"steps_per_s\": " << measured.steps / measured.seconds
       << ", \"cpu_us_per_step\": " << measured.cpu / steps;
  write_list(file, "spans", measured.spans);
  write_list(file, "save_s", measured.save_s);
  write_list(file, "load_s", measured.load_s);
  file << "}\n";
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
                 const fluid::Variable& cost, int first = 0, Trace* trace = nullptr) {
  const auto batches = batches_of(options);
  // Where there are several, workers begin with different ones.
  const size_t first_batch = static_cast<size_t>(fleet::worker_index()) * batches.size() / 2;
  const int warmup = std::min(options.warm_up, options.steps / 2);
  Measured measured;
  Clock::time_point start;
  for (int step = first; step < options.steps; ++step) {
    if (step == warmup) {
      start = Clock::now();
      measured.cpu = cpu_us();
    }
    if (options.sleep_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options.sleep_ms));
    }
    if (options.spans) measured.spans.push_back(seconds_since_boot());
    exe.run(program, batches[(first_batch + static_cast<size_t>(step)) % batches.size()], {cost});
    if (options.spans) measured.spans.push_back(seconds_since_boot());
    if (trace != nullptr) trace->write("step", step + 1, seconds_since_boot());
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

// Seconds of whole checkpoints, each in a folder of its own, and of loading them, which servers
// allow before their first step only.
std::pair<std::vector<double>, std::vector<double>> save_and_load(const Options& options,
                                                                  fluid::Executor& exe) {
  std::vector<double> save_s;
  std::vector<double> load_s;
  for (int i = 0; i < options.saves; ++i) {
    const std::string folder = options.checkpoints + "/save" + std::to_string(i);
    const double begin = seconds_since_boot();
    fleet::save_checkpoint(exe, folder, {});
    const double saved = seconds_since_boot();
    if (!fleet::load_checkpoint(exe, folder)) throw std::runtime_error("no checkpoint was loaded");
    save_s.push_back(saved - begin);
    load_s.push_back(seconds_since_boot() - saved);
  }
  return {save_s, load_s};
}

int train(const Options& options) {
  Trace trace;
  const double started = seconds_since_boot();
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
  if (options.trace) trace.open(options.report + ".trace" + std::to_string(fleet::worker_index()));
  trace.write("start", getpid(), started);
  Measured measured;
  if (options.threads == 1) {
    const auto from = fleet::resume(
        exe, {.folder = options.checkpoints, .every_steps = options.checkpoint_every});
    trace.write("from", from.step, seconds_since_boot());
    const auto [save_s, load_s] = save_and_load(options, exe);
    measured = measure(options, exe, program, cost, static_cast<int>(from.step), &trace);
    measured.save_s = save_s;
    measured.load_s = load_s;
  } else {
    fluid::run_trainer_threads(exe, program, static_cast<uint32_t>(options.threads),
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
  add("warm_up", po::value(&options.warm_up)->default_value(20), "steps that are not measured");
  add("checkpoints", po::value(&options.checkpoints)->default_value(""),
      "folder of checkpoints: it goes on from the newest, and makes more");
  add("checkpoint_every", po::value(&options.checkpoint_every)->default_value(0),
      "steps between two");
  add("saves", po::value(&options.saves)->default_value(0),
      "checkpoints that are written and read, and timed, before the first step");
  add("trace", po::bool_switch(&options.trace), "write when each step was over, as it happens");
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

// A small program of a user, for tests that start real processes: trains a net on rows drawn from
// (step, worker), by the strategy, steps and pauses that its flags say.
//
//   --strategy NAME     sync, async, half_async, ssp, dc_asgd, geo, easgd, all_reduce, local_sgd
//                       (default: the job's); --interval N of the last three but all_reduce
//   --steps A,B,…       of each worker; the last counts for the rest
//   --pause_at STEP --pause_worker W   that worker says "pausing" and waits for SIGUSR2 before it
//   --leave_at STEP --leave_worker W --leave_by return|exit|throw|kill   that worker, or with -1
//                       each, does so before it, without stop_worker
//   --spin_at STEP --spin_worker W   that worker says "spinning" and never ends that step
//   --evaluate_s N      worker 0 does something else for so long before its fourth step
//   --sleep_ms N        before each step, in place of computing
//   --meet              all workers meet before the first step
//   --all_reduce N      all workers add up N numbers before the first step, and check the sums
//   --width N           features of a row; default 6
//   --server_room_mb N  servers may take no more memory than that above what they have at their
//   start
//   --endpoints A,B,… --rank R   a rank of a collective job by these arguments, not by variables
//   --save DIR          at the end
//   --print             the configuration
//   --report            tells the launcher the loss, and how many steps there are
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/philox.h"
#include "base/strings.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

constexpr int kRows = 8;

using Flags = std::map<std::string, std::string>;

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0;
    flags[name] = has_value ? argv[++i] : "";
  }
  return flags;
}

int number(const Flags& flags, const std::string& name, int otherwise) {
  const auto found = flags.find(name);
  return found == flags.end() ? otherwise : std::stoi(found->second);
}

int steps_of(const Flags& flags, int worker) {
  const auto found = flags.find("--steps");
  if (found == flags.end()) return 10;
  const auto counts = fleet::split(found->second, ',');
  return std::stoi(counts[std::min(static_cast<size_t>(worker), counts.size() - 1)]);
}

strategies::DistributedStrategy strategy_of(const Flags& flags) {
  const auto found = flags.find("--strategy");
  const std::string name = found == flags.end() ? "" : found->second;
  if (name == "sync") return strategies::SyncStrategy{};
  if (name == "all_reduce") return strategies::GradAllReduceStrategy{};
  const int interval = number(flags, "--interval", 4);
  if (name == "local_sgd") return strategies::LocalSgdStrategy{{.interval = interval}};
  if (name == "async") return strategies::AsyncStrategy{};
  if (name == "half_async") return strategies::HalfAsyncStrategy{};
  if (name == "ssp") return strategies::AsyncStrategy{.staleness_bound = 2};
  if (name == "dc_asgd") return strategies::AsyncStrategy{.enable_dc_asgd = true};
  if (name == "geo") return strategies::GeoStrategy{.update_frequency = interval};
  if (name == "easgd") return strategies::EasgdStrategy{.tau = interval};
  return {};
}

fluid::Feed batch(int step, int worker, int width) {
  std::vector<float> x;
  std::vector<float> y;
  const auto key = fleet::RandomKey::of(static_cast<uint64_t>(worker), "rows");
  for (int row = 0; row < kRows; ++row) {
    float sum = 0;
    for (int i = 0; i < width; ++i) {
      const auto at =
          static_cast<uint64_t>(row) * static_cast<uint64_t>(width) + static_cast<uint64_t>(i);
      x.push_back(fleet::uniform_float(key, at, static_cast<uint64_t>(step)));
      sum += x.back();
    }
    y.push_back(sum);
  }
  return {{"x", fluid::Tensor::from(x, {kRows, width})}, {"y", fluid::Tensor::from(y, {kRows, 1})}};
}

void pause_until_told() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  std::fprintf(stderr, "pausing\n");
  int signal = 0;
  sigwait(&wanted, &signal);
}

// Whether this worker is the one that a flag names, at the step that another names.
bool is_turn(const Flags& flags, const std::string& what, int worker, int step) {
  const int who = number(flags, "--" + what + "_worker", 0);
  return number(flags, "--" + what + "_at", -1) == step && (who == worker || who < 0);
}

// Returns when the caller is to return from main.
void leave(const Flags& flags) {
  const std::string way = flags.at("--leave_by");
  if (way == "exit") std::exit(0);
  if (way == "throw") throw std::runtime_error("a mistake of the user's");
  if (way == "kill") std::raise(SIGKILL);
}

void spin() {
  std::fprintf(stderr, "spinning\n");
  std::atomic<uint64_t> turns{0};
  while (turns.fetch_add(1) < UINT64_MAX) {
  }
}

// A line that finds no room is dropped.
void report(const Flags& flags, int worker, float loss) {
  const auto fd = fleet::Environment::of_process().get("FLEET_PROGRESS_FD");
  if (flags.count("--report") == 0 || !fd) return;
  const std::string line =
      fleet::str_cat("progress steps=", steps_of(flags, worker), " loss=", loss, "\n");
  if (write(std::stoi(*fd), line.data(), line.size()) < 0) return;
}

// Element i of worker w is i + w.
void add_up(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), fleet::worker_index());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<double> sums = fleet::all_reduce_worker(values);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const int workers = fleet::worker_num();
  for (size_t i = 0; i < values.size(); ++i) {
    if (i < sums.size() && sums[i] == workers * (static_cast<double>(i) + (workers - 1) / 2.0)) {
      continue;
    }
    throw std::runtime_error(fleet::str_cat("element ", i, " of the sums is wrong"));
  }
  std::printf("added up %d numbers in %.2f s\n", count, taken.count());
}

// For the rest of this process's life.
void leave_room(int megabytes) {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlim_t bytes =
      pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (static_cast<rlim_t>(megabytes) << 20);
  const rlimit limit{bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
}

void init(const Flags& flags) {
  if (flags.count("--endpoints") == 0) return fleet::init(role_maker::PaddleCloudRoleMaker());
  fleet::init(role_maker::UserDefinedCollectiveRoleMaker(
      {.current_id = number(flags, "--rank", 0),
       .worker_endpoints = fleet::split(flags.at("--endpoints"), ',')}));
}

int train(const Flags& flags) {
  fluid::default_startup_program().set_random_seed(7);
  const int width = number(flags, "--width", 6);
  auto x = fluid::layers::data("x", {width}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kFloat32);
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.05});
  init(flags);
  auto optimizer = fleet::distributed_optimizer(sgd, strategy_of(flags));
  optimizer.minimize(cost);
  if (flags.count("--print") > 0) std::printf("%s", fleet::default_fleet().to_string().c_str());
  if (fleet::is_server()) {
    if (flags.count("--server_room_mb") > 0) leave_room(number(flags, "--server_room_mb", 0));
    return fleet::run_server();
  }
  fleet::init_worker();
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  if (flags.count("--meet") > 0) fleet::barrier_worker();
  if (flags.count("--all_reduce") > 0) add_up(number(flags, "--all_reduce", 0));
  const int worker = fleet::worker_index();
  const fluid::Program& program = fluid::default_main_program();
  const auto threads = static_cast<uint32_t>(
      std::stoi(fleet::Environment::of_process().get("CPU_NUM").value_or("1")));
  float loss = 0;
  bool left = false;
  const auto body = [&](uint32_t thread, fluid::Executor& own) {
    for (int step = 0; step < steps_of(flags, worker); ++step) {
      if (is_turn(flags, "leave", worker, step)) {
        leave(flags);
        left = true;
        return;
      }
      if (is_turn(flags, "spin", worker, step)) spin();
      if (number(flags, "--pause_at", -1) == step && number(flags, "--pause_worker", 0) == worker) {
        pause_until_told();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(number(flags, "--sleep_ms", 0)));
      if (step == 3 && worker == 0) {
        std::this_thread::sleep_for(std::chrono::seconds(number(flags, "--evaluate_s", 0)));
      }
      const int part = worker * static_cast<int>(threads) + static_cast<int>(thread);
      const float cost_now = own.run(program, batch(step, part, width), {cost})[0].item<float>();
      if (thread == 0) report(flags, worker, loss = cost_now);
    }
  };
  if (threads == 1) body(0, exe);
  if (threads > 1) fluid::run_trainer_threads(exe, program, threads, body);
  if (left) return 0;
  const auto found = flags.find("--save");
  if (found != flags.end()) fluid::io::save_persistables(exe, found->second);
  fleet::stop_worker();
  std::printf("worker %d ended after %d steps with loss %g\n", worker, steps_of(flags, worker),
              static_cast<double>(loss));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR2);
  sigprocmask(SIG_BLOCK, &told, nullptr);
  try {
    return train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

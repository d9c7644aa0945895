#include "benchmarks/harness/harness.h"

#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::benchmarks {
namespace {

namespace po = boost::program_options;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void print_row(const Row& row, double before_us, double after_us) {
  std::printf("%-26s %12.2f %-8s %-28s %12.2f  ratio %6.2f", row.name.c_str(), row.value,
              row.unit.c_str(), row.peer.c_str(), row.peer_value, row.ratio());
  if (row.target)
    std::printf(" (target %.2f)%s", *row.target, row.ratio() >= *row.target ? "" : " short");
  if (!row.valid) std::printf("  INVALID");
  std::printf("  rounds %d  placement_us %.2f/%.2f  %s\n", row.rounds, before_us, after_us,
              row.note.c_str());
  std::fflush(stdout);
}

nlohmann::json to_json(const Row& row, double before_us, double after_us) {
  nlohmann::json json = {{"name", row.name},
                         {"value", row.value},
                         {"unit", row.unit},
                         {"peer", row.peer},
                         {"peer_value", row.peer_value},
                         {"ratio", row.ratio()},
                         {"target", nullptr},
                         {"rounds", row.rounds},
                         {"valid", row.valid},
                         {"note", row.note},
                         {"placement_us", {before_us, after_us}}};
  if (row.target) json["target"] = *row.target;
  return json;
}

int run_all(const std::vector<Benchmark>& all, const std::string& filter, const std::string& path) {
  nlohmann::json rows = nlohmann::json::array();
  bool complete = true;
  for (const Benchmark& benchmark : all) {
    if (benchmark.name.find(filter) == std::string::npos) continue;
    try {
      const double before = placement_probe_us();
      Row row = benchmark.run();
      row.name = benchmark.name;
      const double after = placement_probe_us();
      print_row(row, before, after);
      rows.push_back(to_json(row, before, after));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s did not run: %s\n", benchmark.name.c_str(), error.what());
      complete = false;
    }
  }
  if (!path.empty()) {
    std::ofstream file(path);
    file << rows.dump(1) << "\n";
    complete = complete && file.good();
  }
  return complete ? 0 : 1;
}

}  // namespace

double Row::ratio() const {
  const double over = better == Better::kHigher ? value : peer_value;
  const double under = better == Better::kHigher ? peer_value : value;
  return under == 0 ? 0 : over / under;
}

int bench_main(int argc, char** argv, const char* summary, const std::vector<Benchmark>& all) {
  po::options_description flags("Options");
  auto add = flags.add_options();
  add("filter", po::value<std::string>()->default_value(""), "run rows whose name contains this");
  add("json", po::value<std::string>()->default_value(""), "write the rows here");
  add("list", "print the names of the rows");
  add("help", "print this text");
  add("version", "print the version");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    if (given.count("help") != 0) {
      std::cout << summary << "\n\n" << flags << "\nExample: " << argv[0] << " --list\n";
      return 0;
    }
    if (given.count("version") != 0) {
      std::cout << FLEET_VERSION << "\n";
      return 0;
    }
    if (given.count("list") != 0) {
      for (const Benchmark& benchmark : all) std::cout << benchmark.name << "\n";
      return 0;
    }
    return run_all(all, given["filter"].as<std::string>(), given["json"].as<std::string>());
  } catch (const po::error& error) {
    std::cerr << "error: " << error.what() << "\n  fix: see --help\n";
    return 2;
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Pair interleave(int rounds, const std::function<double()>& ours,
                const std::function<double()>& peer) {
  std::vector<double> our_values;
  std::vector<double> peer_values;
  for (int i = 0; i < rounds; ++i) {
    our_values.push_back(ours());
    peer_values.push_back(peer());
  }
  return {median(our_values), median(peer_values)};
}

double placement_probe_us() {
  constexpr int kRounds = 20000;
  // With other work on the machine a round lasts as long as a time slice.
  constexpr double kMaxSeconds = 0.1;
  alignas(64) std::atomic<int> turn{0};
  std::thread other([&turn] {
    for (int now = 0; now >= 0; now = turn.load(std::memory_order_acquire)) {
      if (now == 1) turn.store(0, std::memory_order_release);
    }
  });
  const auto start = Clock::now();
  int rounds = 0;
  while (rounds < kRounds && (rounds % 64 != 0 || seconds_since(start) < kMaxSeconds)) {
    turn.store(1, std::memory_order_release);
    while (turn.load(std::memory_order_acquire) != 0) {
    }
    ++rounds;
  }
  const double seconds = seconds_since(start);
  turn.store(-1, std::memory_order_release);
  other.join();
  return seconds * 1e6 / rounds;
}

Rate rate_of(double seconds, const std::function<void()>& step) {
  const auto begin = Clock::now();
  int warm = 0;
  while (warm < 3 || (warm < 20 && seconds_since(begin) < seconds / 2)) {
    step();
    ++warm;
  }
  const int batch = seconds_since(begin) / warm < 1e-3 ? 16 : 1;
  const auto start = Clock::now();
  const double processor = processor_seconds();
  int64_t steps = 0;
  double elapsed = 0;
  do {
    for (int i = 0; i < batch; ++i) step();
    steps += batch;
    elapsed = seconds_since(start);
  } while (elapsed < seconds);
  const auto done = static_cast<double>(steps);
  return {.wall = done / elapsed, .processor = done / (processor_seconds() - processor)};
}

std::string instruction_set() {
  return __builtin_cpu_supports("avx512f") ? "avx512" : "avx2";
}

std::string program_folder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, n > 0 ? static_cast<size_t>(n) : 0);
  return whole.substr(0, whole.rfind('/'));
}

ProcessResult run_process(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) throw_error(ErrorCode::kInput, {.what = "no pipe"});
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  std::vector<char*> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.push_back(*entry);
  for (const std::string& entry : environment)
    variables.push_back(const_cast<char*>(entry.c_str()));
  variables.push_back(nullptr);

  const auto start = Clock::now();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, args[0], &actions, nullptr, args.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  if (error != 0) {
    close(out[0]);
    throw_error(ErrorCode::kInput, {.what = "a program does not start", .where = argv[0]});
  }
  ProcessResult result;
  char block[4096];
  for (ssize_t n = read(out[0], block, sizeof block); n > 0;
       n = read(out[0], block, sizeof block)) {
    result.output.append(block, static_cast<size_t>(n));
  }
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  result.seconds = seconds_since(start);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace fleet::benchmarks

// What every benchmark program shares: rows, interleaved rounds, the placement probe, the command
// line and the JSON file that scripts/bench.sh collects.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fleet::benchmarks {

// Whether larger values (rates) or smaller ones (times, bytes) are better.
enum class Better { kHigher, kLower };

struct Row {
  std::string name;
  double value = 0;
  std::string unit;
  std::string peer;  // what it is measured against
  double peer_value = 0;
  Better better = Better::kHigher;
  std::optional<double> target;  // of ratio(); nothing for rows that only report
  int rounds = 1;
  std::string note;   // instruction set, validity, spread
  bool valid = true;  // false when the peer itself ran below what is known to be possible

  // How many times better we are: ours/theirs for rates, theirs/ours for times and bytes.
  double ratio() const;
};

struct Benchmark {
  std::string name;
  std::function<Row()> run;
};

// Runs the benchmarks whose names contain --filter, prints a table and writes --json. Flags:
// --filter, --json, --list, --help, --version. The exit code says whether all of them ran.
int bench_main(int argc, char** argv, const char* summary, const std::vector<Benchmark>& all);

struct Pair {
  double ours = 0;  // median over the rounds
  double peer = 0;  // median over the rounds
};

// Measures ours, peer, ours, peer, … so that a machine whose speed drifts changes both.
Pair interleave(int rounds, const std::function<double()>& ours,
                const std::function<double()>& peer);

double median(std::vector<double> values);

// Microseconds of a round trip of one cache line between two threads: about 0.1 or 0.45 here,
// depending on where the host puts the processors.
double placement_probe_us();

// Calls per second, and per second of this process's time on processors: what other processes do
// changes the first much more.
struct Rate {
  double wall = 0;
  double processor = 0;
};
// Of `step`, run for about `seconds` after a warm-up.
Rate rate_of(double seconds, const std::function<void()>& step);

// "avx512" or "avx2".
std::string instruction_set();

// The folder of this program, where the other programs of the build are.
std::string program_folder();

struct ProcessResult {
  int exit_code = 0;
  double seconds = 0;
  std::string output;  // stdout
};

// Runs a program to its end; extra environment entries are "NAME=value".
ProcessResult run_process(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment = {});

}  // namespace fleet::benchmarks

// The main program of every benchmark binary: its rows, the command line, and the JSON file that
// scripts/bench.sh collects.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/harness/measure.h"
#include "benchmarks/harness/process.h"
#include "benchmarks/harness/row.h"
#include "benchmarks/harness/stored.h"

namespace fleet::benchmarks {

struct Benchmark {
  std::string name;
  std::function<Row(const Rounds&)> run;
};

// What the command line chooses.
struct BenchOptions {
  std::string filter;  // rows whose name contains this
  std::string row;     // only the row of this name
  std::string json;    // write the rows here
  Stored stored;
  Rounds::Side side = Rounds::Side::kBoth;
  bool quiet = false;  // print nothing
  bool full_size = false;
  // Each row in a process of its own, which is this program's: it reads `stored_file`, and is ended
  // with all that it started after `limit_s` seconds.
  bool apart = false;
  std::string stored_file;
  double limit_s = 240;
};

// Runs the rows that are chosen and judges them. One that throws is a failed row, and so is one
// whose own process crashes or is not done in time. The file names the rows that are still to come
// as failed while a row runs, so that none gets lost when this process ends early. Throws when the
// file cannot be written.
std::vector<tools::BenchRow> run_benchmarks(const std::vector<Benchmark>& all,
                                            const BenchOptions& options);

// Ops of this process and of those that it starts have one thread, where a row does not ask for
// more (FLEET_NUM_THREADS): rows compare cores. Parses the command line (see --help), runs the
// benchmarks, prints each row and a last line that counts them and names those that failed, missed
// or are invalid. The exit code is 1 when one failed; with --strict also when one missed or is
// invalid.
int bench_main(int argc, char** argv, const char* summary, const std::vector<Benchmark>& all);

}  // namespace fleet::benchmarks

#include "benchmarks/harness/harness.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {
namespace {

namespace po = boost::program_options;
using tools::BenchRow;

void print_row(const BenchRow& row) {
  std::printf("%-26s %12s %-8s %-28s %12s  ratio %6s", row.name.c_str(),
              tools::significant(row.value).c_str(), row.unit.c_str(), row.peer.c_str(),
              tools::significant(row.peer_value).c_str(), tools::significant(row.ratio).c_str());
  if (row.ratio_min) {
    std::printf(" (%s to %s)", tools::significant(row.ratio_min).c_str(),
                tools::significant(row.ratio_max).c_str());
  }
  if (row.target) std::printf(" target %s", tools::significant(row.target).c_str());
  if (row.bound) std::printf(" bound %s", tools::significant(row.bound).c_str());
  std::printf("  %s", tools::name_of(row.verdict()));
  for (const std::string& reason : row.invalid) std::printf(" (%s)", reason.c_str());
  std::printf("  rounds %d in %.1f s  placement_us %s  %s%s%s\n", row.rounds, row.seconds,
              join(row.placement_us, "/").c_str(), row.note.c_str(), row.skipped.c_str(),
              row.error.c_str());
  std::fflush(stdout);
}

void write_rows(const std::string& path, const std::vector<BenchRow>& rows) {
  if (path.empty()) return;
  if (std::ofstream(path) << tools::bench_rows_json(rows) << std::flush) return;
  throw_error(ErrorCode::kInput, {.what = "a file cannot be written",
                                  .where = path,
                                  .expected = "a path that this user may write",
                                  .got = "",
                                  .fix = "give another path to --json"});
}

double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

BenchRow run_one(const Benchmark& benchmark, const BenchOptions& options, const Machine& machine) {
  try {
    const double before = placement_probe_us();
    const auto start = std::chrono::steady_clock::now();
    const Row measured = benchmark.run(Rounds(options.side, options.full_size));
    BenchRow row = judge(benchmark.name, measured, options.stored, machine);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    row.seconds = rounded(took.count());
    row.placement_us = {rounded(before), rounded(placement_probe_us())};
    return row;
  } catch (const std::exception& error) {
    return failed_row(benchmark.name, error.what(), machine);
  }
}

// The same row in a process of its own, which nothing outlives: neither a crash nor a standstill of
// one row takes the others with it.
BenchRow run_apart(const Benchmark& benchmark, const BenchOptions& options,
                   const Machine& machine) {
  try {
    const TemporaryFolder folder;
    const std::string file = folder.file("row.json");
    std::vector<std::string> argv = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                     "--row",
                                     benchmark.name,
                                     "--in_process",
                                     "--quiet",
                                     "--json",
                                     file,
                                     "--stored",
                                     options.stored_file};
    if (options.side == Rounds::Side::kOurs) argv.emplace_back("--ours_only");
    if (options.full_size) argv.emplace_back("--full");
    // Its temporary files go away with this folder, also when it cannot take them away itself.
    const ProcessResult result =
        run_process(argv, {str_cat("TMPDIR=", folder.file(""))}, options.limit_s);
    end_all_children();
    std::cout << result.output << std::flush;
    std::cerr << result.errors;
    if (result.timed_out) {
      return failed_row(benchmark.name,
                        str_cat("it was not done after ", options.limit_s, " s and was ended"),
                        machine);
    }
    if (result.exit_code > 1) {
      const bool by_signal = result.exit_code > 128;
      return failed_row(benchmark.name,
                        str_cat("its process ended with ", by_signal ? "signal " : "exit code ",
                                by_signal ? result.exit_code - 128 : result.exit_code),
                        machine);
    }
    return tools::read_bench_rows(file).at(0);
  } catch (const std::exception& error) {
    return failed_row(benchmark.name, error.what(), machine);
  }
}

bool is_better(double value, std::optional<double> known, bool lower_is_better) {
  return !known || (lower_is_better ? value < *known : value > *known);
}

// Keeps the best values of this processor.
void store_bests(Stored& stored, const std::vector<BenchRow>& rows) {
  const std::string processor = processor_name();
  for (const BenchRow& row : rows) {
    if (row.peer_kind != tools::BenchPeer::kFixed || !row.error.empty()) continue;
    if (is_better(row.value, stored.best(processor, row.name), row.lower_is_better)) {
      stored.set_best(processor, row.name, rounded(row.value));
    }
  }
}

// And the best of what peers reach on it.
void store_peers(Stored& stored, const std::vector<BenchRow>& rows) {
  const std::string processor = processor_name();
  for (const BenchRow& row : rows) {
    if (row.peer_kind == tools::BenchPeer::kFixed || !row.error.empty() || !row.peer_value)
      continue;
    auto figures = row.others;
    figures.emplace_back(row.peer, *row.peer_value);
    for (const auto& [who, value] : figures) {
      if (is_better(value, stored.peer(processor, row.name, who), row.lower_is_better)) {
        stored.set_peer(processor, row.name, who, rounded(value));
      }
    }
  }
}

po::options_description flags_of_all() {
  po::options_description flags("Options");
  auto add = flags.add_options();
  add("filter", po::value<std::string>()->default_value(""), "run rows whose name contains this");
  add("row", po::value<std::string>()->default_value(""), "run only the row of this name");
  add("json", po::value<std::string>()->default_value(""), "write the rows here");
  add("stored", po::value<std::string>()->default_value(FLEET_BENCH_STORED),
      "figures known of peers, and the best of ours");
  add("store_best", "write values that are better than the stored ones into that file");
  add("store_peers", "write figures of peers that are better than the stored ones into it");
  add("limit", po::value<double>()->default_value(240),
      "seconds of a row; one that is not done then is ended, and failed");
  add("full", "rows that take minutes or much memory at their full size, too");
  add("in_process", "run the rows in this process, without a limit, not in one each");
  add("quiet", "print neither the rows nor the last line");
  add("ours_only", "measure each row once and without its peer, for comparing two trees");
  add("strict", "fail when a row missed or is invalid, too");
  add("list", "print the names of the rows");
  add("help", "print this text");
  add("version", "print the version");
  return flags;
}

int run_all(const std::vector<Benchmark>& all, const po::variables_map& given) {
  BenchOptions options;
  options.filter = given["filter"].as<std::string>();
  options.row = given["row"].as<std::string>();
  options.json = given["json"].as<std::string>();
  options.stored_file = given["stored"].as<std::string>();
  options.stored = Stored::read(options.stored_file);
  options.limit_s = given["limit"].as<double>();
  options.apart = given.count("in_process") == 0;
  options.quiet = given.count("quiet") != 0;
  options.full_size = given.count("full") != 0;
  if (given.count("ours_only") != 0) options.side = Rounds::Side::kOurs;
  const auto rows = run_benchmarks(all, options);
  Stored stored = Stored::read(options.stored_file);
  const bool bests = given.count("store_best") != 0;
  const bool peers = given.count("store_peers") != 0;
  if (bests) store_bests(stored, rows);
  if (peers) store_peers(stored, rows);
  if (bests || peers) stored.write(options.stored_file);
  if (rows.empty()) return 0;
  if (!options.quiet) std::cout << tools::bench_last_line(rows) << std::endl;
  const bool failed = std::any_of(rows.begin(), rows.end(), [](const BenchRow& row) {
    return row.verdict() == tools::BenchVerdict::kFailed;
  });
  const bool strict = given.count("strict") != 0;
  return failed || (strict && tools::has_bench_problem(rows)) ? 1 : 0;
}

}  // namespace

std::vector<BenchRow> run_benchmarks(const std::vector<Benchmark>& all,
                                     const BenchOptions& options) {
  const Machine machine = Machine::here();
  std::vector<const Benchmark*> chosen;
  std::vector<BenchRow> rows;
  for (const Benchmark& benchmark : all) {
    if (benchmark.name.find(options.filter) == std::string::npos) continue;
    if (!options.row.empty() && benchmark.name != options.row) continue;
    chosen.push_back(&benchmark);
    rows.push_back(failed_row(benchmark.name, "the process ended before this row did", machine));
  }
  if (options.apart) inherit_orphans();
  for (size_t i = 0; i < chosen.size(); ++i) {
    write_rows(options.json, rows);
    rows[i] = options.apart ? run_apart(*chosen[i], options, machine)
                            : run_one(*chosen[i], options, machine);
    if (!options.quiet) print_row(rows[i]);
  }
  write_rows(options.json, rows);
  return rows;
}

int bench_main(int argc, char** argv, const char* summary, const std::vector<Benchmark>& all) {
  setenv("FLEET_NUM_THREADS", "1", 1);
  const po::options_description flags = flags_of_all();
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
    return run_all(all, given);
  } catch (const po::error& error) {
    std::cerr << "error: " << error.what() << "\n  fix: see --help\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}

}  // namespace fleet::benchmarks

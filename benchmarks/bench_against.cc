// Measures the rows of two builds of the benchmarks in turns: what changed between two trees.

#include <algorithm>
#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"

namespace fleet::benchmarks {
namespace {

namespace fs = std::filesystem;
using tools::BenchRow;

struct Options {
  std::string ours;  // folders of the two builds' programs
  std::string theirs;
  std::string name;  // of their tree
  std::string filter;
  int pairs = 15;
};

// A row below this share of the other tree is short.
constexpr double kNoWorse = 0.97;
// One measurement of one side.
constexpr double kMostSeconds = 120;

struct RowOf {
  std::string program;
  std::string name;
  bool known = false;  // by the other tree
};

std::vector<std::string> listed_by(const std::string& program) {
  if (!fs::exists(program)) return {};
  return split(run_to_success({program, "--list"}).output, '\n');
}

std::vector<RowOf> rows_of(const Options& options) {
  std::vector<RowOf> rows;
  for (const auto& entry : fs::directory_iterator(options.ours)) {
    const std::string program = entry.path().filename().string();
    if (!program.starts_with("bench_") || program == "bench_against") continue;
    const auto theirs = listed_by(str_cat(options.theirs, "/", program));
    for (const std::string& name : listed_by(entry.path().string())) {
      if (name.empty() || name.find(options.filter) == std::string::npos) continue;
      const bool known = std::find(theirs.begin(), theirs.end(), name) != theirs.end();
      rows.push_back({program, name, known});
    }
  }
  return rows;
}

BenchRow measure_once(const std::string& folder, const RowOf& row) {
  const TemporaryFolder temporary;
  const std::string file = temporary.file("row.json");
  const auto result = run_process({str_cat(folder, "/", row.program), "--row", row.name,
                                   "--ours_only", "--in_process", "--quiet", "--json", file},
                                  {}, kMostSeconds);
  end_all_children();
  if (result.timed_out) {
    throw_error(ErrorCode::kInternal,
                {.what = str_cat("a row was not done after ", kMostSeconds, " s and was ended"),
                 .where = str_cat(folder, "/", row.program, " ", row.name)});
  }
  const auto rows = tools::read_bench_rows(file);
  if (rows.size() == 1 && rows[0].error.empty()) return rows[0];
  throw_error(ErrorCode::kInternal, {.what = "a row did not run",
                                     .where = str_cat(folder, "/", row.program, " ", row.name),
                                     .got = rows.empty() ? "no row" : rows[0].error});
}

Row compare(const Options& options, const RowOf& row, int pairs) {
  if (!row.known) return {.skipped = str_cat(options.name, " has no such row")};
  Row result = {.peer = options.name, .target = kNoWorse};
  const BenchRow first = measure_once(options.ours, row);  // a warm-up
  if (!first.skipped.empty()) return {.value = first.value, .skipped = first.skipped};
  const auto value_of = [&](const std::string& folder) {
    const BenchRow measured = measure_once(folder, row);
    result.unit = measured.unit;
    result.better = measured.lower_is_better ? Better::kLower : Better::kHigher;
    return measured.value;
  };
  const Pairs measured = Rounds().pairs(
      pairs, [&] { return value_of(options.ours); }, [&] { return value_of(options.theirs); });
  result.take(measured);
  return result;
}

// One that is short is measured again with twice as many pairs, which then count.
BenchRow judged(const Options& options, const RowOf& row) {
  const Machine machine = Machine::here();
  try {
    Row result = compare(options, row, options.pairs);
    if (result.skipped.empty() && result.ratio() < kNoWorse)
      result = compare(options, row, 2 * options.pairs);
    return judge(row.name, result, {}, machine);
  } catch (const std::exception& error) {
    return failed_row(row.name, error.what(), machine);
  }
}

int run(const Options& options, const std::string& json) {
  inherit_orphans();
  std::vector<BenchRow> rows;
  for (const RowOf& row : rows_of(options)) {
    rows.push_back(judged(options, row));
    std::cout << row.name << ": " << tools::significant(rows.back().ratio) << " ("
              << tools::significant(rows.back().ratio_min) << " to "
              << tools::significant(rows.back().ratio_max) << ") "
              << tools::name_of(rows.back().verdict()) << std::endl;
    if (!json.empty()) std::ofstream(json) << tools::bench_rows_json(rows);
  }
  std::cout << tools::bench_last_line(rows) << std::endl;
  return tools::has_bench_problem(rows) ? 1 : 0;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  fleet::benchmarks::Options options;
  std::string json;
  po::options_description flags("Options");
  auto add = flags.add_options();
  add("ours", po::value(&options.ours), "folder of this tree's benchmark programs");
  add("theirs", po::value(&options.theirs), "folder of the other tree's");
  add("name", po::value(&options.name)->default_value("the other tree"), "what to call it");
  add("filter", po::value(&options.filter)->default_value(""), "rows whose name contains this");
  add("pairs", po::value(&options.pairs)->default_value(15),
      "pairs a row; one that is short is measured again with twice as many");
  add("json", po::value(&json)->default_value(""), "write the rows here");
  add("help", "print this text");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    po::notify(given);
    if (given.count("help") != 0 || options.ours.empty() || options.theirs.empty()) {
      std::cout << "Measures two builds of the benchmarks in turns.\n\n"
                << flags << "\nExample: bench_against --ours build/bench/bin --theirs "
                << "build/against/tree/build/bench/bin\n";
      return given.count("help") != 0 ? 0 : 2;
    }
    return fleet::benchmarks::run(options, json);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}

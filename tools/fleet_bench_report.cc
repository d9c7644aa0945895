#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/strings.h"
#include "tools/bench_rows.h"
#include "tools/command_line.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;

tools::ToolInfo tool_info() {
  tools::ToolInfo info;
  info.name = "fleet_bench_report";
  info.sentence = "joins the rows that benchmarks wrote into one table and one summary.";
  info.usage = "[options] ROWS...";
  info.example = "fleet_bench_report --summary summary.json rows/bench_mlp.json";
  info.options.add_options()("summary", po::value<std::string>(), "write every row to this file")(
      "require_targets", po::bool_switch(), "fail when a row misses its target");
  info.hidden.add_options()("rows", po::value<std::vector<std::string>>()->required(),
                            "what --json wrote, one file a benchmark");
  info.positional.add("rows", -1);
  return info;
}

int report(const po::variables_map& options) {
  std::vector<tools::BenchRow> rows;
  for (const auto& file : options["rows"].as<std::vector<std::string>>()) {
    for (auto& row : tools::read_bench_rows(file)) rows.push_back(std::move(row));
  }
  tools::print_bench_table(std::cout, rows);
  if (options.count("summary") > 0) {
    const auto file = options["summary"].as<std::string>();
    if (!(std::ofstream(file) << tools::bench_summary_json(rows) << std::flush)) {
      throw_error(ErrorCode::kInput, {.what = "a file cannot be written",
                                      .where = file,
                                      .expected = "a path that this user may write",
                                      .got = "",
                                      .fix = "give another path"});
    }
  }
  int missed = 0;
  for (const auto& row : rows) missed += row.met() == false ? 1 : 0;
  if (missed > 0)
    std::cout << "\n" << missed << " of " << rows.size() << " rows miss their target\n";
  return missed > 0 && options["require_targets"].as<bool>() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, report);
}

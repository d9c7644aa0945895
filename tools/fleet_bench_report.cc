#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"
#include "tools/bench_document.h"
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
      "strict", po::bool_switch(), "fail when a row missed, is invalid or did not run")(
      "page", po::value<std::vector<std::string>>()->default_value({}, ""),
      "put the table between this page's markers")(
      "brief_page", po::value<std::vector<std::string>>()->default_value({}, ""),
      "put there only the rows that are held against other systems")(
      "chart", po::value<std::string>(), "draw the ratios into this SVG file");
  info.hidden.add_options()("rows", po::value<std::vector<std::string>>()->required(),
                            "what --json wrote, one file a benchmark");
  info.positional.add("rows", -1);
  return info;
}

void write_file(const std::string& file, const std::string& text) {
  if (std::ofstream(file) << text << std::flush) return;
  throw_error(ErrorCode::kInput, {.what = "a file cannot be written",
                                  .where = file,
                                  .expected = "a path that this user may write",
                                  .got = "",
                                  .fix = "give another path"});
}

// From a page to a file, as the page links it.
std::string link_to(const std::filesystem::path& file, const std::filesystem::path& page) {
  return std::filesystem::absolute(file)
      .lexically_relative(std::filesystem::absolute(page).parent_path())
      .string();
}

// Puts a table, below the chart if there is one, between the page's markers.
void write_page(const std::string& page, std::string table, const po::variables_map& options) {
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  if (options.count("chart") > 0) {
    table = str_cat("![Ratios as bars](", link_to(options["chart"].as<std::string>(), page),
                    ")\n\n", table);
  }
  write_file(page, tools::with_benchmarks(text.str(), table, page));
}

int report(const po::variables_map& options) {
  std::vector<tools::BenchRow> rows;
  for (const auto& file : options["rows"].as<std::vector<std::string>>()) {
    for (auto& row : tools::read_bench_rows(file)) rows.push_back(std::move(row));
  }
  tools::print_bench_table(std::cout, rows);
  if (options.count("summary") > 0) {
    write_file(options["summary"].as<std::string>(), tools::bench_rows_json(rows));
  }
  for (const auto& page : options["page"].as<std::vector<std::string>>()) {
    write_page(page, tools::bench_markdown(rows), options);
  }
  for (const auto& page : options["brief_page"].as<std::vector<std::string>>()) {
    write_page(page, tools::bench_brief_markdown(rows), options);
  }
  if (options.count("chart") > 0) {
    write_file(options["chart"].as<std::string>(), tools::bench_chart(rows));
  }
  std::cout << "\n" << tools::bench_last_line(rows) << "\n";
  return options["strict"].as<bool>() && tools::has_bench_problem(rows) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, report);
}

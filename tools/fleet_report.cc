#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"
#include "tools/command_line.h"
#include "tools/loss_chart.h"
#include "tools/run_metrics.h"
#include "tools/terminal.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;

constexpr std::size_t kSvgPoints = 240;
constexpr int kMaxColumns = 100;

tools::ToolInfo tool_info() {
  tools::ToolInfo info;
  info.name = "fleet_report";
  info.sentence = "compares training runs: a table, their loss curves as text and as SVG.";
  info.usage = "[options] METRICS...";
  info.example = "fleet_report --svg curves.svg local.json parameter_server.json";
  info.options.add_options()("title", po::value<std::string>()->default_value("Training loss"),
                             "the chart's title")("svg", po::value<std::string>(),
                                                  "write the loss curves to this SVG file")(
      "summary", po::value<std::string>(),
      "write one JSON object a run, in an array, to this file")(
      "max_difference", po::value<double>(),
      "fail when two runs' losses at one step differ by more than this");
  info.hidden.add_options()("metrics", po::value<std::vector<std::string>>()->required(),
                            "what --metrics_file wrote, one file a run");
  info.positional.add("metrics", -1);
  return info;
}

void write_file(const std::filesystem::path& file, const std::string& text) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file);
  if (!(out << text << std::flush)) {
    throw_error(ErrorCode::kInput, {.what = "a file cannot be written",
                                    .where = file.string(),
                                    .expected = "a path that this user may write",
                                    .got = "",
                                    .fix = "give another path"});
  }
}

tools::TextStyle terminal_style() {
  const tools::Terminal terminal = tools::standard_output(Environment::of_process());
  tools::TextStyle style;
  style.unicode = terminal.unicode;
  style.colour = terminal.colour;
  if (terminal.columns > 0) style.columns = std::min(terminal.columns, kMaxColumns);
  return style;
}

// False when the runs differ by more than the user allows.
bool report_difference(std::span<const tools::RunMetrics> runs, const po::variables_map& options) {
  const auto difference = tools::largest_difference(runs);
  if (!difference) return true;
  std::cout << "  Largest difference between the curves: " << shortest(difference->value);
  if (difference->value > 0) {
    std::cout << " (" << difference->first_mode << " and " << difference->second_mode << ", step "
              << difference->step << ")";
  }
  std::cout << "\n";
  return options.count("max_difference") == 0 ||
         difference->value <= options["max_difference"].as<double>();
}

int report(const po::variables_map& options) {
  std::vector<tools::RunMetrics> runs;
  for (const auto& file : options["metrics"].as<std::vector<std::string>>()) {
    runs.push_back(tools::read_metrics(file));
  }
  const tools::TextStyle style = terminal_style();
  const auto title = options["title"].as<std::string>();
  const auto text_points = static_cast<std::size_t>(style.columns);
  std::cout << tools::draw_text(tools::make_loss_chart(title, runs, text_points), style) << "\n";
  tools::print_runs_table(std::cout, runs);
  tools::print_growing_tables(std::cout, runs);
  std::cout << "\n";
  if (options.count("svg") > 0) {
    write_file(options["svg"].as<std::string>(),
               tools::draw_svg(tools::make_loss_chart(title, runs, kSvgPoints)));
  }
  if (options.count("summary") > 0) {
    write_file(options["summary"].as<std::string>(), tools::summary_json(runs));
  }
  if (report_difference(runs, options)) return 0;
  std::cerr << "fleet_report: the curves differ by more than "
            << options["max_difference"].as<double>() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, report);
}

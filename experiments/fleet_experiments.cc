#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/strings.h"
#include "tools/command_line.h"

#include "experiments/experiment.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;
using namespace fleet::experiments;

tools::ToolInfo tool_info() {
  tools::ToolInfo info;
  info.name = "fleet_experiments";
  info.sentence =
      "trains small nets under simulated delays and holds the rules of asynchronous, elastic and "
      "local SGD against what their papers claim.";
  info.usage = "[options] [EXPERIMENT...]";
  info.example = "fleet_experiments --seeds 2 --length 0.1 elastic";
  auto add = info.options.add_options();
  add("list", "print the experiments and leave");
  add("csv", po::value<std::string>(), "a CSV file with a header to train on");
  add("label", po::value<std::string>()->default_value(""),
      "the column of the class (default: the last)");
  add("images", po::value<std::string>(), "an IDX file of images to train on");
  add("labels", po::value<std::string>(), "the IDX file of their labels");
  add("digits", po::value<std::string>()->default_value(FLEET_DIGITS),
      "the folder of the UCI digits, which are the default data");
  add("test_rows", po::value<int64_t>()->default_value(1000),
      "the last rows of a CSV or IDX file, which test");
  add("seeds", po::value<int>()->default_value(10), "runs of each cell");
  add("first_seed", po::value<uint64_t>()->default_value(1), "the first run's seed");
  add("hidden", po::value<std::vector<int64_t>>()->multitoken(),
      "widths of the hidden layers (default: 64)");
  add("rate", po::value<double>()->default_value(0),
      "the learning rate (default: each experiment's own)");
  add("length", po::value<double>()->default_value(1), "share of the training to run");
  add("order_only", "gate the order of the results only, not their values");
  add("output", po::value<std::string>(), "a folder for the tables as JSON and the plots as SVG");
  info.hidden.add_options()("experiment", po::value<std::vector<std::string>>(), "");
  info.positional.add("experiment", -1);
  return info;
}

ClassificationData load_data(const po::variables_map& flags) {
  const auto test_rows = flags["test_rows"].as<int64_t>();
  if (flags.count("csv") > 0) {
    return load_csv(flags["csv"].as<std::string>(), test_rows, flags["label"].as<std::string>());
  }
  if (flags.count("images") != flags.count("labels")) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "images and labels belong together",
                                              .where = "--images, --labels",
                                              .expected = "both, or neither",
                                              .got = "one",
                                              .fix = "pass both files"});
  }
  if (flags.count("images") > 0) {
    return load_idx(flags["images"].as<std::string>(), flags["labels"].as<std::string>(),
                    test_rows);
  }
  return load_digits(flags["digits"].as<std::string>());
}

std::vector<Experiment> chosen(const po::variables_map& flags) {
  if (flags.count("experiment") == 0) return all_experiments();
  std::vector<Experiment> chosen;
  std::vector<std::string> names;
  for (const Experiment& experiment : all_experiments()) names.push_back(experiment.name);
  for (const auto& name : flags["experiment"].as<std::vector<std::string>>()) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      throw_error(ErrorCode::kUnknownName,
                  {.what = str_cat("there is no experiment '", name, "'"),
                   .where = "EXPERIMENT",
                   .expected = str_cat("one of ", join(names, ", ")),
                   .got = name,
                   .fix = str_cat("use one of them", did_you_mean(name, names))});
    }
    chosen.push_back(all_experiments()[static_cast<size_t>(found - names.begin())]);
  }
  return chosen;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  if (std::ofstream out(path); out << text << std::flush) return;
  throw_error(ErrorCode::kInput, {.what = "a file cannot be written",
                                  .where = path.string(),
                                  .expected = "a folder that this user may write",
                                  .got = "",
                                  .fix = "give another --output"});
}

int run(const po::variables_map& flags) {
  if (flags.count("list") > 0) {
    for (const Experiment& experiment : all_experiments()) {
      std::cout << experiment.name << ": " << experiment.claim << "\n";
    }
    return 0;
  }
  ExperimentOptions options{.seeds = flags["seeds"].as<int>(),
                            .first_seed = flags["first_seed"].as<uint64_t>(),
                            .order_only = flags.count("order_only") > 0,
                            .rate = flags["rate"].as<double>(),
                            .length = flags["length"].as<double>()};
  if (flags.count("hidden") > 0) options.hidden = flags["hidden"].as<std::vector<int64_t>>();
  const std::vector<Experiment> list = chosen(flags);
  const ClassificationData data = load_data(flags);
  bool holds = true;
  for (const Experiment& experiment : list) {
    const Findings findings = experiment.run(data, options);
    std::cout << to_text(findings) << "\n" << std::flush;
    holds = holds && findings.holds();
    if (flags.count("output") == 0) continue;
    const std::filesystem::path folder = flags["output"].as<std::string>();
    std::filesystem::create_directories(folder);
    write_file(folder / (findings.name + ".json"), to_json(findings));
    for (size_t i = 0; i < findings.plots.size(); ++i) {
      const std::string number = i == 0 ? "" : str_cat("_", i + 1);
      write_file(folder / (findings.name + number + ".svg"), tools::draw_svg(findings.plots[i]));
    }
  }
  return holds ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, run);
}

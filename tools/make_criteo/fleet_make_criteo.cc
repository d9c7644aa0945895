#include <cstdio>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/strings.h"
#include "tools/command_line.h"
#include "tools/make_criteo/click_files.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;

tools::ToolInfo tool_info(tools::ClickOptions& options, tools::ClickFiles& files) {
  tools::ToolInfo info;
  info.name = "fleet-make-criteo";
  info.sentence =
      "writes files of made-up clicks in the format of Criteo's logs, and report.json, which says "
      "what area under the curve the best of all models has on them.";
  info.usage = "[options] FOLDER";
  info.example = "fleet-make-criteo --records 1000000 --files 8 clicks";
  const auto number = [](double& value) {
    return po::value(&value)->default_value(value, str_cat(value));
  };
  info.options.add_options()("records", po::value(&files.records)->default_value(files.records),
                             "records to train on, in files part-000 …")(
      "test_records", po::value(&files.test_records)->default_value(files.test_records),
      "records to test on, in files test-000 …")(
      "files", po::value(&files.files)->default_value(files.files), "files to train on")(
      "test_files", po::value(&files.test_files)->default_value(files.test_files),
      "files to test on")("gzip", po::bool_switch(&files.gzip), "pack the files")(
      "threads", po::value(&files.threads)->default_value(files.threads),
      "threads that write; the files are the same for any number")(
      "seed", po::value(&options.seed)->default_value(options.seed),
      "another seed is another model with other records")(
      "ids", po::value(&options.ids)->default_value(options.ids),
      "values of the 26 categories together")("zipf", number(options.zipf),
                                              "how much more frequent some values are")(
      "strength", number(options.strength),
      "how much values tell: the standard deviation of the log odds, about")(
      "click_rate", number(options.click_rate), "share of clicks, about")(
      "missing", number(options.missing), "share of empty cells, about");
  info.hidden.add_options()("folder", po::value<std::string>()->required(), "where the files are");
  info.positional.add("folder", 1);
  return info;
}

void write_report(const std::filesystem::path& path, const std::string& text) {
  if (std::ofstream(path) << text << std::flush) return;
  throw_error(ErrorCode::kInput, {.what = "the report cannot be written",
                                  .where = "file " + path.string(),
                                  .expected = "a folder that can be written",
                                  .got = {},
                                  .fix = "check the folder and the space left"});
}

void print(const char* what, const tools::ClickPart& part) {
  std::printf("%s: %zu files, %llu records, %llu clicks, best AUC %.6f\n", what, part.files.size(),
              static_cast<unsigned long long>(part.records),
              static_cast<unsigned long long>(part.clicks), part.best_auc);
}

}  // namespace

int main(int argc, char** argv) {
  tools::ClickOptions options;
  tools::ClickFiles files;
  return tools::run_tool(
      tool_info(options, files), argc, argv, [&](const po::variables_map& given) {
        files.folder = given["folder"].as<std::string>();
        const tools::ClickModel model(options);
        const tools::ClickReport report = tools::write_click_files(model, files);
        write_report(files.folder / "report.json", tools::report_json(report, options));
        print("train", report.train);
        print("test", report.test);
        return 0;
      });
}

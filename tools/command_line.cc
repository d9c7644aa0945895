#include "tools/command_line.h"

#include <exception>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::tools {
namespace {

namespace po = boost::program_options;

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void print_help(const ToolInfo& info) {
  std::cout << info.name << ": " << info.sentence << "\n\n"
            << "Usage: " << info.name << " " << info.usage << "\n\n"
            << info.options << "\nExample:\n  " << info.example << "\n";
}

int wrong_usage(const ToolInfo& info, const std::string& what) {
  std::cerr << info.name << ": " << what << " (" << info.name << " --help lists the options)\n";
  return kWrongUsage;
}

po::variables_map parse(const ToolInfo& info, int argc, const char* const* argv) {
  po::options_description all;
  all.add(info.options).add(info.hidden);
  const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv)
                .options(all)
                .positional(info.positional)
                .style(style)
                .run(),
            values);
  if (values.count("help") == 0 && values.count("version") == 0) po::notify(values);
  return values;
}

std::string unknown_flag(const ToolInfo& info, const std::string& flag) {
  std::vector<std::string> names;
  for (const auto& option : info.options.options()) names.push_back("--" + option->long_name());
  return str_cat("unknown option '", flag, "'", did_you_mean(flag, names));
}

}  // namespace

int run_tool(ToolInfo info, int argc, const char* const* argv, const ToolBody& body) {
  info.options.add_options()("help", "print this text and leave")("version",
                                                                  "print the version and leave");
  try {
    const po::variables_map values = parse(info, argc, argv);
    if (values.count("help") > 0) {
      print_help(info);
      return 0;
    }
    if (values.count("version") > 0) {
      std::cout << info.name << " " << FLEET_VERSION << "\n";
      return 0;
    }
    return body(values);
  } catch (const po::unknown_option& error) {
    return wrong_usage(info, unknown_flag(info, error.get_option_name()));
  } catch (const po::error& error) {
    return wrong_usage(info, error.what());
  } catch (const UsageError& error) {
    return wrong_usage(info, error.what());
  } catch (const std::exception& error) {
    std::cerr << info.name << ": " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace fleet::tools

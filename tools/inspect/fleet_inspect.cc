#include <iostream>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"
#include "tools/command_line.h"
#include "tools/inspect/render.h"
#include "tools/terminal.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;
using Words = std::vector<std::string>;

constexpr int kNotEqual = 1;
constexpr int kDamaged = 1;

struct Command {
  const char* name;
  size_t paths;
  const char* usage;
};

constexpr Command kCommands[] = {{"list", 1, "list FOLDER"},
                                 {"show", 1, "show CHECKPOINT"},
                                 {"verify", 1, "verify CHECKPOINT_OR_FOLDER"},
                                 {"compare", 2, "compare A B"}};

tools::ToolInfo tool_info() {
  tools::ToolInfo info;
  info.name = "fleet-inspect";
  info.sentence =
      "shows what checkpoints hold, whether they are whole, and what differs between two. A folder "
      "of checkpoints means its newest where one is wanted.";
  info.usage =
      "[options] list FOLDER | show CHECKPOINT | verify CHECKPOINT_OR_FOLDER | compare A B";
  info.example = "fleet-inspect show --norms checkpoints";
  info.options.add_options()("norms", po::bool_switch(),
                             "with show: the L2 norm, least and largest value of each tensor, and "
                             "how many are not finite")("json", po::bool_switch(), "write JSON");
  info.hidden.add_options()("words", po::value<Words>()->default_value({}, ""),
                            "a command and its paths");
  info.positional.add("words", -1);
  return info;
}

const Command& command_of(const Words& words) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (!words.empty() && words.front() == command.name) return command;
    names.emplace_back(command.name);
  }
  const std::string word = words.empty() ? "" : words.front();
  throw_error(ErrorCode::kUnknownName,
              {.what = words.empty() ? "a command is missing"
                                     : "there is no such command" + did_you_mean(word, names),
               .where = "the command line",
               .expected = join(names, ", "),
               .got = words.empty() ? "nothing" : "'" + word + "'",
               .fix = "write fleet-inspect list FOLDER, for example"});
}

void check_arguments(const Command& command, const po::variables_map& given) {
  const size_t paths = given["words"].as<Words>().size() - 1;
  if (paths != command.paths) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = str_cat(command.name, " takes another number of paths"),
                 .where = "the command line",
                 .expected = str_cat(command.paths),
                 .got = str_cat(paths),
                 .fix = str_cat("write fleet-inspect ", command.usage)});
  }
  if (!given["norms"].as<bool>() || std::string_view(command.name) == "show") return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "--norms belongs to show",
                                            .where = "the command line",
                                            .expected = "fleet-inspect show --norms CHECKPOINT",
                                            .got = command.name,
                                            .fix = "leave --norms out, or use show"});
}

template <class Found>
void print(const Found& found, const po::variables_map& given) {
  if (given["json"].as<bool>()) {
    std::cout << inspect::to_json(found) << std::flush;
    return;
  }
  const tools::Terminal terminal = tools::standard_output(Environment::of_process());
  std::cout << inspect::draw_text(found, {.colour = terminal.colour}) << std::flush;
}

int inspect_paths(const Words& words, const po::variables_map& given) {
  const std::string& command = words[0];
  const std::string& path = words[1];
  if (command == "list") {
    print(inspect::list_checkpoints(path), given);
    return 0;
  }
  if (command == "show") {
    print(inspect::read_checkpoint(path, given["norms"].as<bool>()), given);
    return 0;
  }
  if (command == "verify") {
    const auto checkpoints = inspect::verify(path);
    print(checkpoints, given);
    return inspect::all_whole(checkpoints) ? 0 : kDamaged;
  }
  const auto comparison = inspect::compare(path, words[2]);
  print(comparison, given);
  return comparison.none() ? 0 : kNotEqual;
}

int run(const po::variables_map& given) {
  const auto& words = given["words"].as<Words>();
  check_arguments(command_of(words), given);
  try {
    return inspect_paths(words, given);
  } catch (const ResourceError& error) {
    const ErrorText& text = error.text();
    throw_error(error.code(), {.what = inspect::printable(text.what),
                               .where = inspect::printable(text.where),
                               .expected = inspect::printable(text.expected),
                               .got = inspect::printable(text.got),
                               .fix = inspect::printable(text.fix)});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, run);
}

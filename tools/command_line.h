// What every tool does alike with its arguments: --help, --version, the nearest name for an
// unknown flag, and the exit codes 0 (done), 1 (failed) and 2 (wrong usage).
#pragma once

#include <boost/program_options.hpp>
#include <functional>
#include <string>

namespace fleet::tools {

struct ToolInfo {
  std::string name;
  std::string sentence;  // what it does, one sentence
  std::string usage;     // "[options] FILE..."
  std::string example;   // one line that works as it stands
  boost::program_options::options_description options{"Options"};
  boost::program_options::positional_options_description positional;
  boost::program_options::options_description hidden;  // behind positional arguments
};

using ToolBody = std::function<int(const boost::program_options::variables_map&)>;

// Parses argv, answers --help and --version, and runs the body. Errors become one message on
// stderr and an exit code: UsageError and a bad command line 2, every other error 1.
int run_tool(ToolInfo info, int argc, const char* const* argv, const ToolBody& body);

}  // namespace fleet::tools

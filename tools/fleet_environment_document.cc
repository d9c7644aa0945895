#include <iostream>

#include "tools/command_line.h"
#include "tools/documents.h"

int main(int argc, char** argv) {
  fleet::tools::ToolInfo info;
  info.name = "fleet_environment_document";
  info.sentence = "prints docs/environment.md, the list of every environment variable.";
  info.usage = "[options]";
  info.example = "fleet_environment_document > docs/environment.md";
  return fleet::tools::run_tool(info, argc, argv, [](const auto&) {
    std::cout << fleet::tools::environment_document();
    return 0;
  });
}

#include <iostream>

#include "tools/command_line.h"
#include "tools/documents.h"

int main(int argc, char** argv) {
  fleet::tools::ToolInfo info;
  info.name = "fleet_error_document";
  info.sentence = "prints docs/errors.md, the list of every error and what to do about it.";
  info.usage = "[options]";
  info.example = "fleet_error_document > docs/errors.md";
  return fleet::tools::run_tool(info, argc, argv, [](const auto&) {
    std::cout << fleet::tools::error_document();
    return 0;
  });
}

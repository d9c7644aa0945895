#include <cstring>
#include <exception>
#include <iostream>

#include "launch/agent.h"

int main(int argc, char** argv) {
  try {
    if (argc == 4 && std::strcmp(argv[1], "--guard") == 0) {
      return fleet::launch::run_guard(argv[2], argv[3]);
    }
    if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
      std::cout << "fleet_agent: starts and watches one rank for launch; it is not run by hand.\n\n"
                   "Usage: fleet_agent [--help] [--version]\n\n"
                   "Example:\n  launch --nproc_per_node 2 ./program\n";
      return 0;
    }
    if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
      std::cout << "fleet_agent " << FLEET_VERSION << "\n";
      return 0;
    }
    if (argc > 1) {
      std::cerr << "fleet_agent: unknown option '" << argv[1] << "'; it is started by launch\n";
      return 2;
    }
    return fleet::launch::run_agent();
  } catch (const std::exception& error) {
    std::cerr << "fleet_agent: " << error.what() << "\n";
    return 1;
  }
}

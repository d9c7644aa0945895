// Programs to explain, from files.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "fluid/program/program.h"
#include "strategies/dump/program_dump.h"

namespace fleet::explain {

struct Input {
  std::string title;
  fluid::Program main;
  fluid::Program startup;  // empty when there is none
  std::optional<strategies::JobDescription> job;
  // Main programs that processes ran, by "trainer 0", "rank 0", "server 1".
  std::map<std::string, fluid::Program> ran;
};

// `path`: a folder that FLEET_DUMP_PROGRAM wrote, or a file with a program as Program::to_json or
// to_bytes gives it. `startup`: the same of its startup program; empty: the file
// "….origin_startup.json" beside "….origin_main.json", if it is there. Throws ResourceError for
// files that are missing or damaged, UsageError for a program that has been transpiled already.
Input read_input(const std::filesystem::path& path, const std::filesystem::path& startup = {});

}  // namespace fleet::explain

// Writes programs for people and tools to read (FLEET_DUMP_PROGRAM).
#pragma once

#include <string>

#include "fluid/program/program.h"

namespace fleet {

// <directory>/<name>.txt and .json; makes the directory. Throws ResourceError when it cannot.
void dump_program(const std::string& directory, const std::string& name,
                  const fluid::Program& program);

}  // namespace fleet

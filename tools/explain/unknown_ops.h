// Ops of users' own: a file names them, but the table with their schemas stays in the user's code.
#pragma once

#include <string>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::explain {

// Types of ops that the programs use and their op table lacks, sorted.
std::vector<std::string> unknown_ops(const fluid::Program& main, const fluid::Program& startup);

// Gives the program a library in which ops of these types have the slots that the program fills,
// whatever their attributes and shapes: enough to transpile it, not to run it.
void take_as_they_are(fluid::Program& program, const std::vector<std::string>& types);

}  // namespace fleet::explain

// The transpiled half of a golden case: what the transpiler makes of the program before.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::golden {

// Differences between what the transpiler makes of the user's programs and what the file, with the
// departures, expects; the same once more from the programs that the file itself holds. None for
// cases without a transpiled half (kind "layers").
std::vector<std::string> check_transpiled(const nlohmann::json& golden, const fluid::Program& main,
                                          const fluid::Program& startup);

}  // namespace fleet::golden

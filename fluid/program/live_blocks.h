// Which blocks of a program can run.
#pragma once

#include <cstdint>
#include <set>

#include "fluid/program/program.h"

namespace fleet::fluid {

// Block 0, and every block that an op of a live block refers to. Program::verify looks at these.
std::set<int32_t> live_blocks(const Program& program);

}  // namespace fleet::fluid

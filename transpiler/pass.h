// Named steps of a rewriting. Each changes one program in place, and the program is verified after
// each, so that a fault is reported under the name of the step that made it.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "fluid/ops/op_schema.h"
#include "fluid/program/program.h"

namespace fleet::transpiler {

struct Pass {
  std::string_view name;     // "insert_sends"
  std::string_view purpose;  // one sentence
  std::function<void(fluid::Program&)> apply;
};

// Runs the passes in order. Throws what a pass throws; ProgramError with the pass's name when the
// program does not verify after it.
void run_passes(fluid::Program& program, std::span<const Pass> passes, const fluid::OpTable& table);

}  // namespace fleet::transpiler

// Named steps of a rewriting. Each changes one program in place, and what it makes is verified, so
// that a fault is reported under the name of the step that made it.
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

// Runs passes and verifies what they make: names, blocks and parents after every pass; every op
// against its schema after the last, or after every pass with verify_each, which costs several
// times as much and names the pass at fault exactly.
struct PassRunner {
  const fluid::OpTable& table;  // must outlive the runner
  bool verify_each = false;

  // Throws what a pass throws; ProgramError with the pass's name when the program does not verify.
  void run(fluid::Program& program, std::span<const Pass> passes) const;
};

}  // namespace fleet::transpiler

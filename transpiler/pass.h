// Named steps of a rewriting. Each changes one program in place, and what it makes is verified, so
// that a fault is reported under the name of the step that made it.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "fluid/program/program.h"

namespace fleet::transpiler {

struct Pass {
  std::string_view name;     // "insert_sends"
  std::string_view purpose;  // one sentence
  std::function<void(fluid::Program&)> apply;
  // False when the job has nothing for the pass to do: then it does not run, and nobody hears of
  // it.
  bool needed = true;
};

// The names of all passes, in alphabetical order.
std::span<const std::string_view> pass_names();

// A pass begins, or has finished and its program verifies. Who times passes reads a clock at both.
struct PassEvent {
  std::string_view pass;
  std::string_view purpose;
  bool finished = false;
  const fluid::Program& program;
};

// Runs passes and verifies what they make: names, blocks and parents after every pass; every op
// against its schema after the last, or after every pass with verify_each, which costs several
// times as much and names the pass at fault exactly.
struct PassRunner {
  bool verify_each = false;
  // Passes that are left out. What then does not verify is an error all the same.
  std::set<std::string, std::less<>> skip = {};
  std::function<void(const PassEvent&)> observer = {};

  // Throws what a pass throws; ProgramError with the pass's name when the program does not verify.
  void run(fluid::Program& program, std::span<const Pass> passes) const;
};

}  // namespace fleet::transpiler

// Where the ops of transpiled programs come from: watches the passes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "fluid/program/program.h"
#include "tools/explain/explanation.h"
#include "transpiler/pass.h"

namespace fleet::explain {

struct OpStory {
  Origin origin = Origin::kKept;
  int local = -1;  // position in block 0 of the program that was given
  std::string pass;
  std::string purpose;  // of the pass
};

// Ops by block and position.
using ProgramStory = std::vector<std::vector<OpStory>>;

// Give observe() to TranspileOptions::pass_observer. A pass changes a program in place and leaves
// the addresses of the ops that it keeps (fluid/program/program.h), which is how they are known.
class PassHistory {
 public:
  PassHistory(const fluid::Program& main, const fluid::Program& startup);

  // Whose programs are made from here on. `startup`: programs that begin empty are startup
  // programs; others are recognised.
  void set_process(std::string process, bool startup);
  void observe(const transpiler::PassEvent& event);

  // The story of a program of this form: the last that a pass made, or one of the given ones.
  // Empty when there is none.
  ProgramStory story_of(const fluid::Program& program) const;
  const std::vector<ExplainedPass>& passes() const { return passes_; }

 private:
  struct OpBefore {
    OpStory story;
    fluid::Shared<fluid::Operator> op;  // an edit makes another, so that this stays as it was
  };
  struct Known {
    uint64_t form = 0;
    bool startup = false;
    ProgramStory story;
  };

  void remember(const fluid::Program& program, bool startup, ProgramStory story);
  const Known* find(const fluid::Program& program) const;
  void begin(const fluid::Program& program);
  void end(const transpiler::PassEvent& event);

  std::string process_;
  bool empty_is_startup_ = false;
  std::vector<Known> known_;
  // Of the pass that runs.
  std::unordered_map<uint64_t, OpBefore> before_;  // by identity
  bool startup_ = false;
  std::vector<ExplainedPass> passes_;
};

}  // namespace fleet::explain

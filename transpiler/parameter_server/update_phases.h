// Updates that need more than one slice: which of their ops run where, and what servers exchange in
// between (docs/transpiler.md, "Exchanges").
//
// Ops are in the names of the whole program, but for what slices make for an exchange: a part of a
// variable v is called v + kPartSuffix, on the server of slice i "v.block<i>".
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {

inline constexpr std::string_view kPartSuffix = "@PART";

// One op of a slice's chain; `update` marks the one with Param and Grad that its parameter has.
struct PhasedOp {
  fluid::Shared<fluid::Operator> op;
  bool update = false;
};

// A variable that servers put together.
struct ExchangedVar {
  std::string name;   // on every server, whole
  size_t param = 0;   // position, as updated_at has it
  bool rows = false;  // parts by rows from every slice; else one part, from the only slice
};

// What happens between two phases.
struct ExchangeStage {
  std::vector<ExchangedVar> vars;
  std::vector<fluid::Operator> ops;  // the same on every server
};

struct UpdatePhases {
  // By position, as updated_at has it: ops by phase. One phase for a parameter that takes part in
  // no exchange.
  std::vector<std::vector<std::vector<PhasedOp>>> params;
  std::vector<ExchangeStage> stages;
  // Whole variables, and variables of stages: called the same on every server.
  std::set<std::string, std::less<>> shared;
  // Variables that the user's program does not have.
  std::map<std::string, fluid::VarDesc, std::less<>> added;
};

// Throws ProgramError (kNotSupported) for an op that can be computed neither by slices nor from
// sums over rows.
UpdatePhases plan_phases(const fluid::Program& program, const TrainingOps& ops,
                         const ServerPlan& plan);

}  // namespace fleet::transpiler

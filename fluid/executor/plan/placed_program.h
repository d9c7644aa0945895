// Where the ops of a program run on a place, and what is copied between places in a step, as the
// executor plans it. Nothing runs, and no device is needed.
#pragma once

#include <vector>

#include "fluid/core/place.h"
#include "fluid/kernels/op_places.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

// An op of the program, or a copy. Points into the program.
struct PlacedOp {
  const Block* block = nullptr;
  const Operator* op = nullptr;  // null: a copy
  HostReason why_host = HostReason::kNone;
  const VarDesc* copied = nullptr;  // what a copy copies; null for a variable without declaration
  bool to_device = false;           // a copy's direction
  bool once_a_shard = false;        // else once a step, or a run of its block
};

struct PlacedProgram {
  // In the order in which they run; those of a block follow the op that runs it.
  std::vector<PlacedOp> ops;
  // What is fed, where the device reads it: copied there in each step.
  std::vector<const VarDesc*> fed;
};

// Of the program's main block, with everything fed that it reads and does not write. `place` is a
// device. Throws ProgramError as running the program there would.
PlacedProgram placed_program(const Program& program, const KernelTable& kernels, const Place& place,
                             OpPlaces::Options options);

}  // namespace fleet::fluid

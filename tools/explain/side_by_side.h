// The programs of a set in rows: an op of the local program, what became of it on the trainer, and
// what servers do about it.
#pragma once

#include <vector>

#include "tools/explain/explanation.h"

namespace fleet::explain {

// The ops of one block of one server's program.
struct ServerCell {
  const ExplainedProgram* server = nullptr;
  int32_t block = 0;
  std::vector<const ExplainedOp*> ops;
};

struct Row {
  const ExplainedOp* local = nullptr;
  const ExplainedOp* trainer = nullptr;
  std::vector<ServerCell> servers;
};

// Rows in the order of the local program; ops of sub-blocks follow those of block 0. A server's
// block stands beside the first op that moved into it; one that none moved into comes at the end.
std::vector<Row> side_by_side(const ProgramSet& programs);

}  // namespace fleet::explain

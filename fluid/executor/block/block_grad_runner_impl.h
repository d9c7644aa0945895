// Gradients of ops that run blocks: the block of the gradient runs once for each iteration of the
// forward op, the last first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fluid/executor/block/block_history_impl.h"
#include "fluid/executor/block/block_runner_impl.h"

namespace fleet::fluid {

class BlockGradRunner : public BlockRunner {
 public:
  // For an op of a gradient in the outer workspace's plan; null for an op of another type.
  static std::unique_ptr<BlockRunner> make(Workspace& outer, const PlanOp& op);

 protected:
  BlockGradRunner(Workspace& outer, const PlanOp& op, std::string_view scopes_slot)
      : outer_(outer), op_(op), scopes_(op.op->input(scopes_slot).front()) {}

  // What the forward op left; throws ProgramError when it has not run.
  BlockHistory& history() const;
  // The workspace of the gradient of iteration i, inside that of the iteration itself.
  Workspace& workspace_of(BlockHistory& history, size_t i);
  // A variable of the gradient's block; null when the block does not touch it.
  Value* inner(Workspace& workspace, const std::string& name) const;
  // What was left by the step before must not be taken for this step's.
  void forget(Workspace& workspace, const std::string& name) const;
  // Assigns a variable of the outer workspace; does nothing for one that nobody wants.
  void put(const std::string& name, Value value) const;

  Workspace& outer_;
  const PlanOp& op_;
  std::string scopes_;

 private:
  struct Entry {
    Workspace* forward = nullptr;
    std::unique_ptr<Workspace> workspace;
  };
  std::vector<Entry> workspaces_;
};

}  // namespace fleet::fluid

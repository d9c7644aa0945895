// Ops that run blocks: conditional_block, while, recurrent and their gradients. The block is a plan
// of its own (PlanOp::block), run in workspaces inside the one of the op.
#pragma once

#include <memory>

#include "fluid/executor/workspace_impl.h"

namespace fleet::fluid {

class BlockRunner {
 public:
  virtual ~BlockRunner() = default;
  virtual void run(const Workspace::Step& step, int shard) = 0;

  // For op k of the outer workspace's plan, which must outlive the runner.
  static std::unique_ptr<BlockRunner> make(Workspace& outer, int k);
};

}  // namespace fleet::fluid

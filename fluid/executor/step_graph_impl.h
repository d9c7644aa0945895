// Steps that a device repeats by itself: the work that ops put on the stream is recorded once, and
// started as a whole in later steps (CUDA graphs).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fluid/executor/workspace_impl.h"

namespace fleet::fluid {

// Used by one thread at a time; the workspace must outlive it. Records a step when two before it
// had all values at the same places and in the same shapes, and again when one of them moved.
class StepGraph {
 public:
  explicit StepGraph(Workspace& workspace);

  // Does what `run_ops` does, by the recorded step where there is one. False: the caller is to call
  // run_ops itself.
  bool run(const Workspace::Step& step, const std::function<void()>& run_ops);

 private:
  // Where a value is, and what it looks like.
  struct Spot {
    const void* memory = nullptr;
    Shape shape;
    bool operator==(const Spot&) const = default;
  };
  void spots(std::vector<Spot>& spots) const;
  void record(const std::function<void()>& run_ops);
  void tell(const std::string& why);

  Workspace& workspace_;
  std::string obstacle_;  // why steps of this plan are not recorded; empty: they are
  bool told_ = false;
  std::vector<Spot> known_;
  std::vector<Spot> now_;
  int settled_ = 0;  // steps in a row that had `known_`
  std::shared_ptr<void> graph_;
};

}  // namespace fleet::fluid

// Copies between the host and a device, put into a plan where an op runs elsewhere than what it
// reads and writes is at home (fluid/kernels/op_places.h).
#pragma once

#include <string>
#include <vector>

#include "fluid/executor/plan/plan_impl.h"
#include "fluid/kernels/op_places.h"

namespace fleet::fluid {

// Fills a plan's ops and variables, in the order in which ops are added. A variable has at most one
// copy, at the other place; it is made when an op reads it there, and taken home when an op needs
// it at home again.
class PlacePlanner {
 public:
  // Both must outlive this.
  PlacePlanner(PlanData& plan, const OpPlaces& places) : plan_(plan), places_(places) {}

  // Gives the op, which is the plan's next, its place, and makes its variables those of that place.
  void place(PlanOp& planned);
  // Variables are at home from here on, and copies of them are no longer looked at: before another
  // part of the step, which may have new feeds.
  void meet(bool feeds);

 private:
  enum class At { kHome, kBoth, kOther };
  struct State {
    int copy = -1;  // position of the copy among the plan's variables
    At at = At::kHome;
    OpRole role = OpRole::kForward;  // of who wrote it last
  };

  void come_home(int var);
  int read(int var, const Place& place, OpRole role);
  int write(int var, const PlanOp& writer);
  int copy_of(int var);
  bool is_fed(int var) const;
  void add_copy(int from, int to, OpRole role);
  State& state(int var);

  PlanData& plan_;
  const OpPlaces& places_;
  std::vector<State> states_;
};

// Sets PlanOp::staged, once it is known what ops wait for.
void find_staged(PlanData& plan);

}  // namespace fleet::fluid

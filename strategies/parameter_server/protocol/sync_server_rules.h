// Decisions of the synchronous protocol. There is one right answer to each, the default; a test
// that wants to prove that it would notice a broken protocol gives the server another, and so does
// a benchmark that measures what the right one costs.
#pragma once

#include <cstdint>

#include "strategies/parameter_server/protocol/sum_tree.h"

namespace fleet::strategies {

// Immutable; what it says depends on the arguments alone.
class SyncServerRules {
 public:
  virtual ~SyncServerRules() = default;
  // Whether a contribution is dropped; `known`: it was taken before.
  virtual bool drops(bool known) const { return known; }
  // Contributions that must be in before a barrier that announces so many is met.
  virtual int64_t awaited(uint32_t announced) const { return announced; }
  // The place in the sum of a contributor who is the `arrived`-th to come, from 0.
  virtual uint32_t place(uint32_t contributor, uint32_t /*arrived*/) const { return contributor; }
  // In what order the places are added up.
  virtual SumTree tree(const ContributorTable& contributors) const { return SumTree(contributors); }
};

}  // namespace fleet::strategies

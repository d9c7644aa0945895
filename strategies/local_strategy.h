// One process: the programs stay as they are, and run with the same logical shards as they would
// in a distributed job.
#pragma once

#include <memory>

#include "strategies/strategy.h"

namespace fleet::strategies {

struct LocalStrategy {
  int logical_shards = 0;  // 0: one

  std::shared_ptr<const Strategy> make() const;
};

}  // namespace fleet::strategies

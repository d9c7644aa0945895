// The programs of one process, as all strategies get them.
#pragma once

#include "strategies/runtime/strategy.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies {

// As transpiler::transpile_for; what it prints goes to the input's logger.
transpiler::ProgramPair transpiled(const StrategyInput& input,
                                   transpiler::DistributeTranspilerConfig config, int shards);

}  // namespace fleet::strategies

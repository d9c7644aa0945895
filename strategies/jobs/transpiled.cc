#include "strategies/jobs/transpiled.h"

#include <utility>

namespace fleet::strategies {

transpiler::ProgramPair transpiled(const StrategyInput& input,
                                   transpiler::DistributeTranspilerConfig config, int shards) {
  config.print_log = input.print_log;
  return transpiler::transpile_for(input.main, input.startup, input.cluster, config, shards,
                                   input.logger);
}

}  // namespace fleet::strategies

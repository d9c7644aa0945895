// LocalSGD: every rank updates its own parameters, and now and then they average.
#pragma once

#include "fluid/program/program.h"
#include "transpiler/collective/collective_program.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

// Scheduled: the main program ends with c_local_sgd of all parameters that it updates, with the
// loss and the rate that schedules look at. Else every step averages, in Paddle's form: with
// s the parameter after the last average (p@SNAPSHOT, made by the startup program),
// p = s - mean over the ranks of (s - p). One rank: unchanged. Throws UsageError when there are
// other logical shards than ranks, ProgramError when a result does not verify.
ProgramPair make_local_sgd_programs(const fluid::Program& main, const fluid::Program& startup,
                                    const CollectiveOptions& options, const PassRunner& runner);

}  // namespace fleet::transpiler

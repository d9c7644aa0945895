// Learning-rate schedules in asynchronous jobs: no step is common to all trainers, so each trainer
// tells the servers of its own, and the schedule counts their sum.
#pragma once

#include <cstdint>
#include <string>

#include "fluid/ops/distributed/names.h"
#include "fluid/program/program.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

// The step counter of schedules (fluid/layers/learning_rate_scheduler.h).
using fluid::kStepCounter;

// True when the program's schedule counts steps.
bool counts_steps(const fluid::Program& main);

// In the main program the counter becomes the sum of one counter per trainer; the startup program
// sets those to 1 and starts the sum such that the first step of all trainers is the schedule's
// first; or, as Paddle does, such that it counts a trainer's start as a step: the first
// gradient of N trainers counts N, whatever the schedule begins with. What it counts first is
// returned. Throws ProgramError when a result does not verify.
int64_t count_per_trainer(fluid::Program& main, fluid::Program& startup, int trainers,
                          bool paddle_schedules, const PassRunner& runner);

// What Paddle's jobs with a communicator do, whose servers are never told of a step: the
// counter of N trainers is N, always. Throws ProgramError when the result does not verify.
void stop_counting(fluid::Program& main, int trainers, const PassRunner& runner);

}  // namespace fleet::transpiler

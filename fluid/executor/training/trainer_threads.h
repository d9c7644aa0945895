// Several trainer threads in one process, each of which takes steps of its own: those of a worker
// of an asynchronous job (CPU_NUM), and Hogwild without a job.
#pragma once

#include <cstdint>
#include <functional>

#include "fluid/executor/executor.h"

namespace fleet::fluid {

// What a trainer thread runs.
using TrainerThread = std::function<void(uint32_t thread, Executor& executor)>;

// Runs `body` in `count` threads at once, each with an executor of its own: the plans of
// `executor`, and a scope that begins as a copy of its scope (run the startup program before).
// Threads share nothing that is written but what the runtime exchanges. Returns when all are done;
// the first thing that was thrown is thrown here. The executor's scope then has the values of the
// thread that ended last. `program` is the one that the threads will run; its runtime, or
// `runtime` when that is given, must take trainer threads (CommRuntime::enter_thread), and nobody
// may be called after its runs, as fleet::resume has it for checkpoints: UsageError otherwise.
void run_trainer_threads(Executor& executor, const Program& program, uint32_t count,
                         const TrainerThread& body, CommRuntime* runtime = nullptr);

// The same without a job: the threads share one set of parameters, which each reads and updates
// without a lock while the others do (Niu et al., "Hogwild!", NIPS 2011). So results differ from
// run to run. UsageError where the program communicates, or somebody is called after its runs.
void run_hogwild_threads(Executor& executor, const Program& program, uint32_t count,
                         const TrainerThread& body);

}  // namespace fleet::fluid

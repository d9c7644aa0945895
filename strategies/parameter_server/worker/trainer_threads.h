// Several trainer threads in one worker process (Hogwild, CPU_NUM): they share a program's plans,
// and nothing that is written.
#pragma once

#include <cstdint>
#include <functional>

#include "fluid/executor/executor.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet::strategies {

// Runs `body` in `count` threads at once, each with an executor of its own: the plans of
// `executor`, and a scope that begins as a copy of its scope (run the startup program before).
// Returns when all are done; the first thing that was thrown is thrown here. `program` is the one
// that the threads will run; its runtime, or `runtime` when that is given, must take trainer
// threads (StrategyRuntime::enter_thread), and nobody may be called after its runs, as
// fleet::resume has it for checkpoints: UsageError otherwise.
void run_trainer_threads(
    fluid::Executor& executor, const fluid::Program& program, uint32_t count,
    const std::function<void(uint32_t thread, fluid::Executor& executor)>& body,
    StrategyRuntime* runtime = nullptr);

}  // namespace fleet::strategies

// Several trainer threads in one worker process (Hogwild, CPU_NUM): they share a program's plans,
// and nothing that is written.
#pragma once

#include <cstdint>
#include <functional>

#include "fluid/core/scope.h"
#include "fluid/executor/executor.h"

namespace fleet::strategies {

// A runtime whose trainer program may be run by several threads at once.
class ThreadedRuntime {
 public:
  virtual ~ThreadedRuntime() = default;
  // Trainer threads, by number from 0. `scope` is the thread's own, `parent` the one whose values
  // it began with. Every thread enters before any trains.
  virtual void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) = 0;
  // The thread trains no more; the others do not wait for it.
  virtual void leave_thread(fluid::Scope& scope) = 0;
};

// Runs `body` in `count` threads at once, each with an executor of its own: the plans of
// `executor`, and a scope that begins as a copy of its scope (run the startup program before).
// Returns when all are done; the first thing that was thrown is thrown here. `program` is the one
// that the threads will run; its runtime, or `runtime` when that is given, must be a
// ThreadedRuntime: UsageError otherwise.
void run_trainer_threads(
    fluid::Executor& executor, const fluid::Program& program, uint32_t count,
    const std::function<void(uint32_t thread, fluid::Executor& executor)>& body,
    ThreadedRuntime* runtime = nullptr);

}  // namespace fleet::strategies

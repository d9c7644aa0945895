// What a program can carry besides its text: the runtime that its communication ops talk to.
#pragma once

namespace fleet::fluid {

// Attached to a program by whoever rewrote it (strategies, fleet); never copied into files. The
// executor looks for the interface that it knows (fluid/kernels/comm_runtime.h).
class ProgramRuntime {
 public:
  virtual ~ProgramRuntime() = default;

  // Why an executor must not run the program, or null when it may.
  virtual const char* refusal() const { return nullptr; }
};

}  // namespace fleet::fluid

// The ops of a program: what they mean, and what computes them.
#pragma once

namespace fleet::fluid {

class KernelTable;  // fluid/kernels/kernel_table.h
class OpTable;      // fluid/ops/op_schema.h

// Carried by a program that uses ops from outside this library (fluid/kernels/op_library.h has the
// one to fill). Immutable once a program has it: read from any thread.
class ProgramOps {
 public:
  virtual ~ProgramOps() = default;

  virtual const OpTable& ops() const = 0;
  virtual const KernelTable& kernels() const = 0;
};

}  // namespace fleet::fluid

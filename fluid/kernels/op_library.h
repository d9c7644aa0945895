// Ops of one's own.
#pragma once

#include "fluid/kernels/kernel_table.h"
#include "fluid/ops/op_schema.h"
#include "fluid/program/program_ops.h"

namespace fleet::fluid {

// The ops and kernels of this library, to which a user adds own ones:
//
//   auto library = std::make_shared<fluid::OpLibrary>();
//   library->ops().add(…);            // the op, and the backward op that its gradient rule names
//   library->kernels().add_last(…);   // a kernel of each
//   fluid::default_main_program().set_op_library(library);
//
// Everything that is made of the program follows: layers, minimize, copies, transpiled programs,
// the executors of workers and servers. docs/custom_ops.md shows a whole op. Nothing may be added
// any more once a program has the library.
class OpLibrary final : public ProgramOps {
 public:
  OpTable& ops() { return ops_; }
  KernelTable& kernels() { return kernels_; }
  const OpTable& ops() const override { return ops_; }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  OpTable ops_ = OpTable::standard();
  KernelTable kernels_ = KernelTable::standard();
};

}  // namespace fleet::fluid

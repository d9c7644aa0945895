// Ops from outside the library, for tests: an activation with its gradient and an update rule.
#pragma once

#include <memory>

#include "fluid/kernels/op_library.h"
#include "fluid/optimizer/optimizer_base.h"
#include "fluid/program/variable.h"

namespace fleet::testing {

// "cubed" (a x^3, attribute a) and "cubed_grad", float32; "sign_sgd", which goes by rate against
// the sign of each gradient; "unit_sgd", which goes by rate against the gradient divided by its
// norm; "own_table_v2", which does what lookup_table_v2 does.
std::shared_ptr<fluid::OpLibrary> own_ops();

// The layer of "cubed".
fluid::Variable cubed(const fluid::Variable& x, float a);

// A sparse embedding by "own_table_v2".
fluid::Variable own_lookup(const fluid::Variable& ids, const fluid::Shape& size);

class SignSgd final : public fluid::optimizer::Optimizer {
 public:
  explicit SignSgd(double rate) : Optimizer({.type = "sign_sgd"}, {.learning_rate = rate}) {}
};

class UnitSgd final : public fluid::optimizer::Optimizer {
 public:
  explicit UnitSgd(double rate) : Optimizer({.type = "unit_sgd"}, {.learning_rate = rate}) {}
};

}  // namespace fleet::testing

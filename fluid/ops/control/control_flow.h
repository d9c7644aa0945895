// Ops that run blocks of the program.
//
//   conditional_block  Cond+, Input* -> Out*, Scope: runs `sub_block` when the condition holds (one
//                      boolean that is true with is_scalar_condition, otherwise Cond tensors that
//                      are not empty). Input is what the block reads from outside, Out what it
//                      leaves there; a block that does not run leaves Out as it was.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct ConditionalBlockAttrs {
  BlockRef sub_block;
  bool is_scalar_condition = false;
  std::vector<std::string> skip_eager_deletion_vars;  // without meaning here
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sub_block), CEREAL_NVP(is_scalar_condition),
       CEREAL_NVP(skip_eager_deletion_vars));
  }
};

void add_control_flow_ops(OpTable& table);

}  // namespace fleet::fluid

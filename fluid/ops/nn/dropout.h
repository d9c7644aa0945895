// dropout: elements set to zero at random, by counter: element i of step s and shard k depends on
// the seed, the name of Mask's variable, i, s and k alone.
//
//   dropout       X, Seed? [1], int32 -> Out, Mask (uint8: 1 where the element stays). Under a Seed
//                 element i depends on its number and i alone: equal seeds drop equal elements.
//   dropout_grad  Mask, Out@GRAD -> X@GRAD
// With p = dropout_prob:
//   downgrade_in_infer  training X * mask, test X * (1 - p)
//   upscale_in_train    training X * mask / (1 - p), test X
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct DropoutAttrs {
  float dropout_prob = 0.5f;
  bool is_test = false;
  // With fix_seed the key is `seed`, otherwise the program's; every step draws anew either way.
  bool fix_seed = false;
  int32_t seed = 0;
  std::string dropout_implementation = "downgrade_in_infer";
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(dropout_prob), CEREAL_NVP(is_test), CEREAL_NVP(fix_seed), CEREAL_NVP(seed),
       CEREAL_NVP(dropout_implementation));
  }

  bool upscales() const { return dropout_implementation == "upscale_in_train"; }
};

void add_dropout_ops(OpTable& table);

}  // namespace fleet::fluid

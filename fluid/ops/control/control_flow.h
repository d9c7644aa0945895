// Ops that run blocks of the program.
//
//   conditional_block  Cond+, Input* -> Out*, Scope: runs `sub_block` when the condition holds (one
//                      boolean that is true with is_scalar_condition, otherwise Cond tensors that
//                      are not empty). Input is what the block reads from outside, Out what it
//                      leaves there; a block that does not run leaves Out as it was.
//   while              X*, Condition -> Out*, StepScopes: runs `sub_block` as long as the
//   condition,
//                      one boolean that the block itself writes, is true
//   recurrent          inputs+, initial_states*, parameters* -> outputs+, step_scopes: runs
//                      `sub_block` once per row of the inputs (all have as many), first to last or
//                      with `reverse` last to first. In the block an input's name means its row; a
//                      name of `ex_states` the state before, the same position of `states` the
//                      state that the block leaves; an output gathers its rows.
// Their gradients, "<type>_grad", run a block of gradient ops for each run of the forward block,
// last first. A variable that the forward block rewrites has the suffix kLoopIn in the gradient's
// block where its value before the run is meant. Their output Before has, under the same suffix,
// the values before the whole op, for the gradients of what came earlier.
//
//   select_input       X+, Mask [1] (int32) -> Out: X[Mask]; gradient: select_output
//   select_output      X, Mask -> Out+: X to Out[Mask], nothing to the others
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

inline constexpr std::string_view kLoopIn = "@LOOP_IN";

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

struct WhileAttrs {
  BlockRef sub_block;
  bool is_test = false;
  std::vector<std::string> skip_eager_deletion_vars;  // without meaning here
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sub_block), CEREAL_NVP(is_test), CEREAL_NVP(skip_eager_deletion_vars));
  }
};

struct RecurrentAttrs {
  BlockRef sub_block;
  std::vector<std::string> ex_states;
  std::vector<std::string> states;
  bool has_states = false;
  bool reverse = false;
  bool is_train = true;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sub_block), CEREAL_NVP(ex_states), CEREAL_NVP(states), CEREAL_NVP(has_states),
       CEREAL_NVP(reverse), CEREAL_NVP(is_train));
  }
};

// Of while_grad and conditional_block_grad. Names in the gradient's block; "" where there is none.
struct BlockGradAttrs {
  BlockRef sub_block;
  std::vector<std::string> outs;       // forward variables behind Out@GRAD, one each
  std::vector<std::string> out_grads;  // what the block calls these gradients
  std::vector<std::string> x_grads;    // what it makes for each X (Input)
  std::vector<std::string> rewritten;  // outside variables that the forward block writes
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sub_block), CEREAL_NVP(outs), CEREAL_NVP(out_grads), CEREAL_NVP(x_grads),
       CEREAL_NVP(rewritten));
  }
};

struct RecurrentGradAttrs {
  BlockRef sub_block;
  bool reverse = false;
  std::vector<std::string> states;
  std::vector<std::string> out_grads;        // of outputs@GRAD, as the block calls them
  std::vector<std::string> state_grads;      // taken in, for each of `states`
  std::vector<std::string> ex_state_grads;   // made, for each state before
  std::vector<std::string> input_grads;      // made, for each of inputs
  std::vector<std::string> parameter_grads;  // made, for each of parameters
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sub_block), CEREAL_NVP(reverse), CEREAL_NVP(states), CEREAL_NVP(out_grads),
       CEREAL_NVP(state_grads), CEREAL_NVP(ex_state_grads), CEREAL_NVP(input_grads),
       CEREAL_NVP(parameter_grads));
  }
};

void add_control_flow_ops(OpTable& table);

}  // namespace fleet::fluid

// Building the backward part of a program.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fluid/ops/op_schema.h"
#include "fluid/program/variable.h"

namespace fleet::fluid {

// A parameter and the variable that holds its gradient.
struct ParamGrad {
  Variable param;
  Variable grad;
};

struct BackwardOptions {
  // Parameters to return; all trainable ones when absent. Gradients are computed either way.
  std::optional<std::vector<std::string>> parameter_list = {};
  // Variables that get no gradient, besides those with stop_gradient.
  std::set<std::string> no_grad_set = {};
  // Recomputation (Chen et al. 2016): of what lies before the last of these variables, only they
  // are kept for the backward part; the rest is computed again from the checkpoint before it, as
  // "<name>.subprog_<segment>". Results of ops that draw random numbers are kept too.
  std::vector<std::string> checkpoints = {};
};

// Appends to the loss's program the ops that compute the gradient of `loss`, a variable of shape
// [1] of block 0, for every variable it depends on, and returns the parameters with their
// gradients, in the order in which the parameters were made (or of parameter_list).
//
// The gradient of v is "v@GRAD". A variable used several times gets one "v@GRAD@RENAME@block0@i"
// per use, and a `sum` right before the first op that reads v@GRAD, or at the end when none does.
// Gradients that an op wants and nobody computes come from fill_zeros_like. Ops get the role
// backward, the first one backward|loss, and the op that makes a parameter's gradient carries
// (parameter, gradient) as role_var. A second call gives its variables the suffix "_0", "_1", ….
//
// A variable with an error clip (set_error_clip, gradient_clip.h) has its gradient clipped in place
// as soon as it is whole.
//
// Throws ProgramError when the loss has another shape, or nothing in the program makes it; and for
// names in the options that the program does not have.
std::vector<ParamGrad> append_backward(const Variable& loss, const BackwardOptions& options = {});

// Appends the ops that compute the gradient of the sum of all elements of `targets` with respect to
// `inputs`, variables of block 0, and returns one variable for each input; an empty one where no
// target depends on it, or it has stop_gradient. target_gradients[i] replaces the ones that target
// i starts from; it has its shape. Throws ProgramError for variables of other blocks and for other
// counts.
struct GradientsOptions {
  std::vector<Variable> target_gradients = {};
  std::set<std::string> no_grad_set = {};
};
std::vector<Variable> gradients(const std::vector<Variable>& targets,
                                const std::vector<Variable>& inputs,
                                const GradientsOptions& options = {});

}  // namespace fleet::fluid

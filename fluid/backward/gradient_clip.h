// Gradient clipping: ops between the backward part and the decay.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fluid/backward/backward.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {

namespace clip {

// Each element into [min, max].
Penalty GradientClipByValue(double max, double min);
inline Penalty GradientClipByValue(double max) {
  return GradientClipByValue(max, -max);
}
// Each gradient g scaled by clip_norm / max(|g|, clip_norm).
Penalty GradientClipByNorm(double clip_norm);
// All gradients scaled by clip_norm / max(n, clip_norm), n the norm over all of them.
Penalty GradientClipByGlobalNorm(double clip_norm);

// A parameter, or its name in the default main program.
struct ClippedParam {
  ClippedParam(const Variable& param) : variable(param) {}
  ClippedParam(std::string name_) : name(std::move(name_)) {}
  ClippedParam(const char* name_) : name(name_) {}
  Variable variable;
  std::string name;
};

// The older way to ask for clipping: notes it on the parameters of the list (all of the program
// when absent), as ParamAttr::gradient_clip does. To be called before minimize. Give the optimizer
// a grad_clip instead, which wins over this: it clips the averaged gradient in distributed training
// too, this one what each worker computed. Throws ProgramError for an unknown name, UsageError for
// what is no parameter, an unknown clip, and a parameter that has its update already.
void set_gradient_clip(const Penalty& clip, Program& program = default_main_program(),
                       const std::optional<std::vector<std::string>>& parameter_list = {});
void set_gradient_clip(const Penalty& clip, std::initializer_list<ClippedParam> param_list);
void set_gradient_clip(const Penalty& clip, const std::vector<std::string>& param_list,
                       Program& program = default_main_program());
void set_gradient_clip(const Penalty& clip, const std::vector<Variable>& param_list);

// Error clip: has the gradient of `variable`, which is no parameter, clipped into [min, max] before
// it flows on to what made the variable. To be called before minimize. Throws UsageError for a
// parameter.
void set_error_clip(const Variable& variable, double max, double min);
inline void set_error_clip(const Variable& variable, double max) {
  set_error_clip(variable, max, -max);
}

}  // namespace clip

// Appends the clipping that an optimizer was asked for and returns the parameters with the clipped
// gradients; those of parameters that `need_clip` denies stay as they are and do not count in the
// global norm. Throws UsageError for an unknown kind.
std::vector<ParamGrad> append_gradient_clip(
    const std::vector<ParamGrad>& pairs, const Penalty& clip,
    const std::function<bool(const Variable& param)>& need_clip = {});

// Appends the clipping that was noted on the parameters; those without one keep their gradients.
// The global norm is that of the parameters which ask for it; they must agree on clip_norm. The
// ops' scope contains "@CLIP". Throws UsageError for an unknown kind or differing norms.
std::vector<ParamGrad> append_noted_clips(const std::vector<ParamGrad>& pairs);

}  // namespace fleet::fluid

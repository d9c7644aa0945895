// Values of variables, in scopes and in checkpoints.
#pragma once

#include <string>

#include "base/status.h"
#include "fluid/core/scope.h"
#include "fluid/io/checkpoint_files.h"
#include "fluid/program/var_desc.h"

namespace fleet {

// Null where there is none.
const fluid::Tensor* tensor_in(const fluid::Scope& scope, const std::string& name);
// On the host, with memory of its own.
fluid::Tensor copy_of(const fluid::Tensor& value);
// The checkpoint's value of that name, which must be of the variable's type and shape.
Result<fluid::Tensor> read_value(const fluid::io::CheckpointReader& checkpoint,
                                 const std::string& name, const fluid::VarDesc& var);

}  // namespace fleet

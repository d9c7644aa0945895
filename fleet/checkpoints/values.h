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
// The same in `memory`, where that fits and nobody else has it.
fluid::Tensor copy_in(fluid::Tensor memory, const fluid::Tensor& value);
// The checkpoint's value of that name, which must be of the variable's type and shape.
Result<fluid::Tensor> read_value(const fluid::io::CheckpointReader& checkpoint,
                                 const std::string& name, const fluid::VarDesc& var);
// What would be wrong with it; it is not read.
Status check_value(const fluid::io::CheckpointReader& checkpoint, const std::string& name,
                   const fluid::VarDesc& var);
// Puts the value into the scope: into the memory that is there, where that fits and nobody else has
// it. Throws fleet::Error.
void read_to(fluid::Scope& scope, const fluid::io::CheckpointReader& checkpoint,
             const std::string& name);

}  // namespace fleet

#include "fleet/checkpoints/values.h"

#include "base/strings.h"

namespace fleet {

using fluid::Tensor;

const Tensor* tensor_in(const fluid::Scope& scope, const std::string& name) {
  const fluid::Value* value = scope.find(name);
  const auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  return tensor == nullptr || !tensor->initialized() ? nullptr : tensor;
}

Tensor copy_of(const Tensor& value) {
  return value.place().is_cpu() ? value.clone() : value.on_host();
}

Result<Tensor> read_value(const fluid::io::CheckpointReader& checkpoint, const std::string& name,
                          const fluid::VarDesc& var) {
  auto value = checkpoint.read(name);
  if (!value.ok()) return value;
  const Tensor& found = value.value();
  if (found.dtype() == var.dtype && var.shape.compatible(found.shape())) return value;
  return Status(ErrorCode::kShapeMismatch,
                {.what = "a variable of the checkpoint has another type or shape",
                 .where = str_cat("variable '", name, "' in ", checkpoint.folder().string()),
                 .expected = str_cat(fluid::dtype_name(var.dtype), var.shape),
                 .got = str_cat(fluid::dtype_name(found.dtype()), found.shape()),
                 .fix = "load a checkpoint of the same program, or begin in another folder"});
}

}  // namespace fleet

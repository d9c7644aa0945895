#include "fleet/checkpoints/values.h"

#include "base/strings.h"

namespace fleet {

using fluid::Tensor;

namespace {

// Whether the memory can take another value of that type and shape.
bool can_keep(const Tensor& tensor, fluid::DType dtype, const fluid::Shape& shape) {
  return tensor.initialized() && tensor.place().is_cpu() && tensor.buffer().unique() &&
         tensor.layout() == fluid::Layout::kPlain && tensor.dtype() == dtype &&
         tensor.shape() == shape;
}

}  // namespace

const Tensor* tensor_in(const fluid::Scope& scope, const std::string& name) {
  const fluid::Value* value = scope.find(name);
  const auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  return tensor == nullptr || !tensor->initialized() ? nullptr : tensor;
}

Tensor copy_of(const Tensor& value) {
  return value.place().is_cpu() ? value.clone() : value.on_host();
}

Tensor copy_in(Tensor memory, const Tensor& value) {
  if (!can_keep(memory, value.dtype(), value.shape())) return copy_of(value);
  memory.copy_from(value);
  return memory;
}

Status check_value(const fluid::io::CheckpointReader& checkpoint, const std::string& name,
                   const fluid::VarDesc& var) {
  const auto tensor = checkpoint.find(name);
  if (!tensor.ok()) return tensor.status();
  const fluid::io::CheckpointTensor& found = *tensor.value();
  if (found.dtype == var.dtype && var.shape.compatible(found.shape)) return {};
  return {ErrorCode::kShapeMismatch,
          {.what = "a variable of the checkpoint has another type or shape",
           .where = str_cat("variable '", name, "' in ", checkpoint.folder().string()),
           .expected = str_cat(fluid::dtype_name(var.dtype), var.shape),
           .got = str_cat(fluid::dtype_name(found.dtype), found.shape),
           .fix = "load a checkpoint of the same program, or begin in another folder"}};
}

Result<Tensor> read_value(const fluid::io::CheckpointReader& checkpoint, const std::string& name,
                          const fluid::VarDesc& var) {
  Status status = check_value(checkpoint, name, var);
  if (!status.ok()) return status;
  return checkpoint.read(name);
}

void read_to(fluid::Scope& scope, const fluid::io::CheckpointReader& checkpoint,
             const std::string& name) {
  const fluid::io::CheckpointTensor& saved = *checkpoint.find(name).value();
  fluid::Value& value = scope.var(name);
  auto* tensor = std::get_if<Tensor>(&value);
  if (tensor == nullptr || !can_keep(*tensor, saved.dtype, saved.shape)) {
    tensor = &value.emplace<Tensor>(saved.dtype, saved.shape);
  }
  checkpoint.read_into(name, *tensor).throw_if_error();
}

}  // namespace fleet

#include "fluid/kernels/kernel.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {
namespace {

// The flat position of variable i of a slot: slots in the order of their names.
int flat_position(const SlotMap& slots, std::string_view slot, size_t i) {
  size_t position = 0;
  for (const auto& [name, variables] : slots) {
    if (name == slot) return i < variables.size() ? static_cast<int>(position + i) : -1;
    position += variables.size();
  }
  return -1;
}

const VarDesc* find_var(const Block& block, const std::vector<std::string>& names, size_t i) {
  return i < names.size() ? block.find_var_recursive(names[i]) : nullptr;
}

}  // namespace

ValueSpec spec_of(const Value& value) {
  ValueSpec spec;
  spec.kind = static_cast<ValueKind>(value.index());
  const Tensor* tensor = std::get_if<Tensor>(&value);
  if (const auto* rows = std::get_if<SelectedRows>(&value)) tensor = &rows->value;
  if (tensor != nullptr) {
    if (!tensor->initialized()) spec.kind = ValueKind::kNone;
    spec.dtype = tensor->dtype();
    spec.layout = tensor->layout();
    spec.shape = tensor->shape();
  }
  return spec;
}

std::byte* Scratch::get(size_t bytes) {
  if (!buffer_ || buffer_.size() < bytes) buffer_ = Buffer(std::max<size_t>(bytes, 64));
  return buffer_.data();
}

Tensor& KernelContext::make_dense(int i, DType dtype, const Shape& shape) const {
  Value& value = output_value(i);
  if (!std::holds_alternative<Tensor>(value)) value = Tensor();
  Tensor& tensor = *std::get_if<Tensor>(&value);
  tensor.reset(dtype, shape, place_);
  return tensor;
}

SelectedRows& KernelContext::make_rows(int i, DType dtype, const Shape& shape) const {
  Value& value = output_value(i);
  if (!std::holds_alternative<SelectedRows>(value)) value = SelectedRows();
  SelectedRows& rows = *std::get_if<SelectedRows>(&value);
  rows.value.reset(dtype, shape, place_);
  return rows;
}

PrepareContext::PrepareContext(const Block& block, const Operator& op,
                               std::span<const ValueSpec> inputs, size_t output_count)
    : block_(block), op_(op), inputs_(inputs), outputs_(output_count) {}

int PrepareContext::input(std::string_view slot, size_t i) const {
  return flat_position(op_.inputs, slot, i);
}

int PrepareContext::output(std::string_view slot, size_t i) const {
  const int position = flat_position(op_.outputs, slot, i);
  if (position >= 0 && op_.output(slot)[i].empty()) return -1;
  return position;
}

const ValueSpec& PrepareContext::in(std::string_view slot, size_t i) const {
  const int position = input(slot, i);
  if (position >= 0) {
    const ValueSpec& spec = inputs_[static_cast<size_t>(position)];
    if (spec.kind != ValueKind::kNone) return spec;
  }
  throw_error(
      ErrorCode::kInvalidProgram,
      {.what = position < 0 ? "an input is missing" : "an input has no value yet",
       .where = position < 0 ? str_cat("op '", op_.type, "', slot '", slot, "'")
                             : str_cat("op '", op_.type, "', slot '", slot, "', variable '",
                                       op_.input(slot)[i], "'"),
       .expected = "a tensor",
       .got = "nothing",
       .fix = position < 0 ? "give the op this input"
                           : "run the startup program first, and feed every data variable"});
}

int PrepareContext::set_output(std::string_view slot, const Shape& shape, DType dtype, size_t i) {
  const int position = output(slot, i);
  if (position >= 0) {
    outputs_[static_cast<size_t>(position)] = {
        .declared = true, .own = false, .dtype = dtype, .shape = shape};
  }
  return position;
}

int PrepareContext::own_output(std::string_view slot, size_t i) {
  const int position = output(slot, i);
  if (position >= 0) outputs_[static_cast<size_t>(position)].own = true;
  return position;
}

bool PrepareContext::may_block(std::string_view slot) const {
  const int position = output(slot);
  return position >= 0 && !may_block_.empty() && may_block_[static_cast<size_t>(position)];
}

void PrepareContext::set_blocked(std::string_view slot) {
  const int position = output(slot);
  if (position >= 0) outputs_[static_cast<size_t>(position)].layout = Layout::kBlocked;
}

const VarDesc* PrepareContext::output_var(std::string_view slot, size_t i) const {
  return find_var(block_, op_.output(slot), i);
}

const VarDesc* PrepareContext::input_var(std::string_view slot, size_t i) const {
  return find_var(block_, op_.input(slot), i);
}

void PrepareContext::require(bool condition, std::string_view slot, std::string expected,
                             std::string got) const {
  if (condition) return;
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "an input does not fit",
               .where = str_cat("op '", op_.type, "', slot '", slot, "' (",
                                join(op_.input(slot), ", "), ")"),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = "check the shapes of the fed tensors and of the layers before this op"});
}

DType kernel_dtype(const Block& block, const Operator& op, std::span<const ValueSpec> inputs) {
  const OpSchema& schema = schema_of(block.program(), op);
  const auto marked = [](const SlotSpec& slot) { return slot.gives_dtype; };
  const bool any_input = std::any_of(schema.inputs.begin(), schema.inputs.end(), marked);
  const auto output = std::find_if(schema.outputs.begin(), schema.outputs.end(), marked);
  const bool by_output = !any_input && output != schema.outputs.end();
  for (const SlotSpec& slot : schema.inputs) {
    if (by_output) break;
    const int position =
        slot.gives_dtype || !any_input ? flat_position(op.inputs, slot.name, 0) : -1;
    const bool has_value =
        position >= 0 && inputs[static_cast<size_t>(position)].kind != ValueKind::kNone;
    if (has_value) return inputs[static_cast<size_t>(position)].dtype;
    if (!any_input) break;
  }
  if (by_output) {
    if (const VarDesc* var = find_var(block, op.output(output->name), 0)) return var->dtype;
  }
  for (const auto& [slot, names] : op.outputs) {
    for (const std::string& name : names) {
      if (const VarDesc* var = block.find_var_recursive(name)) return var->dtype;
    }
  }
  return DType::kFloat32;
}

}  // namespace fleet::fluid

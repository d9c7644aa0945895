#include "fluid/ops/schema_util.h"

#include "base/strings.h"
#include "fluid/ops/grad_names.h"

namespace fleet::fluid {
namespace {

void require_count(const InferContext& context, std::string_view slot, size_t i, int64_t count) {
  const VarDesc& var = context.input(slot, i);
  context.require(!var.shape.known() || var.shape.numel() == count, slot,
                  count == 1 ? "one number" : str_cat(count, " numbers"),
                  str_cat(var.shape, " ('", var.name, "')"),
                  "reshape it, or give another variable");
}

}  // namespace

void set_slot(SlotMap& slots, const std::string& slot, const std::vector<std::string>& names) {
  if (!names.empty()) slots[slot] = names;
}

GradientFunction usual_gradient(GradSpec spec) {
  return [spec = std::move(spec)](const GradContext& context) {
    const Operator& forward = context.forward();
    Operator op;
    op.type = spec.type.empty() ? forward.type + "_grad" : spec.type;
    op.attrs = forward.attrs;
    for (const auto& slot : spec.inputs) set_slot(op.inputs, slot, context.input(slot));
    for (const auto& slot : spec.outputs) set_slot(op.inputs, slot, context.output(slot));
    for (const auto& slot : spec.incoming) {
      set_slot(op.inputs, grad_name(slot), context.grad_of_output(slot));
    }
    for (const auto& slot : spec.wanted) {
      set_slot(op.outputs, grad_name(slot), context.grad_of_input(slot));
    }
    return std::vector<Operator>{std::move(op)};
  };
}

InferFunction infer_like(std::vector<std::pair<std::string, std::string>> pairs) {
  return [pairs = std::move(pairs)](InferContext& context) {
    for (const auto& [from, to] : pairs) {
      for (size_t i = 0; i < context.output_count(to); ++i) context.share(from, to, i);
    }
  };
}

InferFunction infer_shape_like(std::vector<std::pair<std::string, std::string>> pairs) {
  return [pairs = std::move(pairs)](InferContext& context) {
    for (const auto& [from, to] : pairs) {
      for (size_t i = 0; i < context.output_count(to); ++i) {
        const VarDesc& like = context.input(from, i);
        context.set_output(to, like.shape, like.dtype, i);
      }
    }
  };
}

double element_count(const std::vector<int64_t>& shape) {
  double elements = shape.empty() ? 0 : 1;
  for (const int64_t dim : shape) elements *= static_cast<double>(dim);
  return elements;
}

int check_axis(const InferContext& context, int axis, int rank, std::string_view slot) {
  context.require(axis >= -rank && axis < rank, slot,
                  str_cat("an axis in [", -rank, ", ", rank, ")"), str_cat("axis ", axis),
                  "give an axis that the variable has");
  return axis < 0 ? axis + rank : axis;
}

void require_whole_numbers(const InferContext& context, std::string_view slot, int64_t count) {
  for (size_t i = 0; i < context.input_count(slot); ++i) {
    const VarDesc& var = context.input(slot, i);
    context.require(var.dtype == DType::kInt32 || var.dtype == DType::kInt64, slot,
                    "int32 or int64", str_cat(dtype_name(var.dtype), " ('", var.name, "')"),
                    "cast it");
    if (count >= 0) require_count(context, slot, i, count);
  }
}

void require_number(const InferContext& context, std::string_view slot, DType dtype) {
  if (!context.has_input(slot)) return;
  context.require_dtype(slot, dtype);
  require_count(context, slot, 0, 1);
}

}  // namespace fleet::fluid

// How rows of the op table are written.
#pragma once

#include <utility>

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

using InferFunction = std::function<void(InferContext&)>;
using GradientFunction = std::function<std::vector<Operator>(const GradContext&)>;

inline SlotSpec one(std::string name) {
  return {.name = std::move(name)};
}
inline SlotSpec maybe(std::string name) {
  return {.name = std::move(name), .optional = true};
}
inline SlotSpec many(std::string name) {
  return {.name = std::move(name), .repeated = true};
}
inline SlotSpec maybe_many(std::string name) {
  return {.name = std::move(name), .optional = true, .repeated = true};
}
inline SlotSpec maybe_attribute(std::string name) {
  return {.name = std::move(name), .optional = true, .for_attribute = true};
}
inline SlotSpec maybe_attributes(std::string name) {
  return {.name = std::move(name), .optional = true, .repeated = true, .for_attribute = true};
}

// The slot says the element type under which the op's kernels are listed.
inline SlotSpec typed(SlotSpec slot) {
  slot.gives_dtype = true;
  return slot;
}

// Rows of ops that no kernel computes.
inline OpSchema run_by_runtime(OpSchema schema) {
  schema.run_by = RunBy::kRuntime;
  return schema;
}
inline OpSchema run_by_executor(OpSchema schema) {
  schema.run_by = RunBy::kExecutor;
  return schema;
}

inline OpSchema draws_numbers(OpSchema schema) {
  schema.draws_numbers = true;
  return schema;
}

template <class Attrs>
OpSchema make_schema(std::string type, std::vector<SlotSpec> inputs, std::vector<SlotSpec> outputs,
                     InferFunction infer = {}, GradientFunction gradient = {}) {
  auto normalize = [type](const AttributeMap& map) {
    return to_attributes(parse_attributes<Attrs>(type, map));
  };
  OpSchema schema;
  schema.type = std::move(type);
  schema.inputs = std::move(inputs);
  schema.outputs = std::move(outputs);
  schema.normalize = std::move(normalize);
  schema.infer = std::move(infer);
  schema.gradient = std::move(gradient);
  return schema;
}

// What the usual backward op, "<type>_grad" with the forward op's attributes, takes and gives.
struct GradSpec {
  std::vector<std::string> inputs;              // forward inputs
  std::vector<std::string> outputs = {};        // forward outputs
  std::vector<std::string> incoming = {"Out"};  // forward outputs whose gradients come in
  std::vector<std::string> wanted = {"X"};      // forward inputs whose gradients go out
  std::string type = {};                        // "<type>_grad" when empty
};
GradientFunction usual_gradient(GradSpec spec);

// Output slots that are like input slots, variable by variable: {{"X", "Out"}, …}.
InferFunction infer_like(std::vector<std::pair<std::string, std::string>> pairs);
// The same without the sequence structure, as some backward ops have it.
InferFunction infer_shape_like(std::vector<std::pair<std::string, std::string>> pairs);

// A copy of the forward op's names in a slot, left out when there are none.
void set_slot(SlotMap& slots, const std::string& slot, const std::vector<std::string>& names);

// The elements of a shape that a run had, as a float of profiles; 0 for a shape that is not known.
double element_count(const std::vector<int64_t>& shape);

// `axis` counted from the front; ProgramError when it is outside [-rank, rank).
int check_axis(const InferContext& context, int axis, int rank, std::string_view slot);

// For the tensors in optional slots, which give an attribute. Each has `count` numbers (-1: any)
// of int32 or int64, as far as its shape is known; ProgramError otherwise.
void require_whole_numbers(const InferContext& context, std::string_view slot, int64_t count);
// One number of `dtype`.
void require_number(const InferContext& context, std::string_view slot, DType dtype);

}  // namespace fleet::fluid

#include "fluid/ops/op_schema.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/grad_names.h"

namespace fleet::fluid {

bool InferContext::has_output(std::string_view slot) const {
  const auto& names = op_.output(slot);
  return std::any_of(names.begin(), names.end(), [](const auto& name) { return !name.empty(); });
}

const VarDesc& InferContext::input(std::string_view slot, size_t i) const {
  const auto& names = op_.input(slot);
  if (i >= names.size()) {
    throw_error(ErrorCode::kInvalidProgram, {.what = "an input is missing",
                                             .where = place(slot),
                                             .expected = str_cat("at least ", i + 1, " variables"),
                                             .got = str_cat(names.size()),
                                             .fix = "fill the slot"});
  }
  return std::as_const(block_).var(names[i]);
}

VarDesc* InferContext::output(std::string_view slot, size_t i) const {
  const auto& names = op_.output(slot);
  if (i >= names.size() || names[i].empty()) return nullptr;
  return &block_.edit_var(names[i]);
}

void InferContext::set_output(std::string_view slot, const Shape& shape, DType dtype, size_t i,
                              int lod_level) {
  VarDesc* var = output(slot, i);
  if (var == nullptr) return;
  var->shape = shape;
  var->dtype = dtype;
  var->lod_level = lod_level;
}

void InferContext::set_kind(std::string_view slot, VarKind kind, size_t i) {
  if (VarDesc* var = output(slot, i)) var->kind = kind;
}

void InferContext::share(std::string_view input_slot, std::string_view output_slot, size_t i) {
  if (i >= input_count(input_slot)) return;
  const VarDesc& from = input(input_slot, i);
  set_output(output_slot, from.shape, from.dtype, i, from.lod_level);
}

std::string InferContext::place(std::string_view slot) const {
  const auto& in = op_.input(slot);
  const auto& names = in.empty() ? op_.output(slot) : in;
  std::string text = str_cat("op '", op_.type, "', slot '", slot, "'");
  if (!names.empty()) text += ", variable '" + join(names, "', '") + "'";
  const auto outputs = op_.output_names();
  if (!outputs.empty()) text += ", making '" + outputs.front() + "'";
  return text;
}

void InferContext::require(bool condition, std::string_view slot, std::string expected,
                           std::string got, std::string fix) const {
  if (condition) return;
  if (fix.empty()) fix = "change what makes this variable, or reshape it before this op";
  throw_error(ErrorCode::kShapeMismatch, {.what = "a variable does not fit the op",
                                          .where = place(slot),
                                          .expected = std::move(expected),
                                          .got = std::move(got),
                                          .fix = std::move(fix)});
}

void InferContext::require_dtype(std::string_view slot, DType expected) const {
  for (size_t i = 0; i < input_count(slot); ++i) {
    const VarDesc& var = input(slot, i);
    if (var.dtype == expected) continue;
    throw_error(ErrorCode::kDTypeMismatch,
                {.what = "a variable has another element type than the op needs",
                 .where = place(slot),
                 .expected = std::string(dtype_name(expected)),
                 .got = str_cat(dtype_name(var.dtype), " ('", var.name, "')"),
                 .fix = str_cat("declare or cast '", var.name, "' as ", dtype_name(expected))});
  }
}

std::vector<std::string> GradContext::grad_of_output(std::string_view slot) const {
  std::vector<std::string> names;
  for (const std::string& name : output(slot)) names.push_back(grad_name(name));
  return names;
}

std::vector<std::string> GradContext::grad_of_input(std::string_view slot) const {
  std::vector<std::string> names;
  bool any = false;
  for (const std::string& name : input(slot)) {
    names.push_back(wanted_(name));
    any = any || !names.back().empty();
  }
  if (!any) names.clear();
  return names;
}

namespace {

std::vector<int64_t> shape_in(const SlotMap& slots, std::string_view slot,
                              const RunShapes::Shapes& shapes) {
  size_t at = 0;
  for (const auto& [name, names] : slots) {
    if (name == slot && !names.empty() && at < shapes.size()) return shapes[at];
    at += names.size();
  }
  return {};
}

}  // namespace

std::vector<int64_t> RunShapes::input(std::string_view slot) const {
  return shape_in(op_.inputs, slot, inputs_);
}

std::vector<int64_t> RunShapes::output(std::string_view slot) const {
  return shape_in(op_.outputs, slot, outputs_);
}

void OpTable::add(OpSchema schema) {
  std::string type = schema.type;
  schemas_.insert_or_assign(std::move(type), std::move(schema));
}

const OpSchema* OpTable::find(std::string_view type) const {
  const auto found = schemas_.find(type);
  return found == schemas_.end() ? nullptr : &found->second;
}

const OpSchema& OpTable::at(std::string_view type) const {
  if (const OpSchema* schema = find(type)) return *schema;
  std::vector<std::string> known;
  for (const auto& [name, schema] : schemas_) known.push_back(name);
  throw_error(ErrorCode::kUnknownName,
              {.what = str_cat("no op '", type, "'", did_you_mean(type, known)),
               .where = "OpTable",
               .expected = "a type of the op table",
               .got = std::string(type),
               .fix = "correct the type, or give the program the library that has the op "
                      "(Program::set_op_library)"});
}

const OpTable& op_table(const Program& program) {
  return program.op_library() ? program.op_library()->ops() : OpTable::standard();
}

const OpSchema& schema_of(const Program& program, const Operator& op) {
  static const OpSchema kUnknown;
  const OpSchema* schema = op_table(program).find(op.type);
  return schema != nullptr ? *schema : kUnknown;
}

const OpSchema& update_schema_of(const Program& program, const Operator& op) {
  const OpSchema& schema = schema_of(program, op);
  const Attribute* attr = schema.applies.empty() ? nullptr : op.attr(schema.applies);
  const auto* type = attr == nullptr ? nullptr : std::get_if<std::string>(attr);
  const OpSchema* applied = type == nullptr ? nullptr : op_table(program).find(*type);
  return applied != nullptr ? *applied : schema;
}

}  // namespace fleet::fluid

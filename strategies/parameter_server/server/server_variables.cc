#include "strategies/parameter_server/server/server_variables.h"

#include <algorithm>

#include "base/error.h"
#include "fluid/ops/op_schema.h"
#include "fluid/program/interleaved.h"
#include "fluid/tables/lookup/shared_table.h"

namespace fleet::strategies {

const fluid::Tensor* initialised(const fluid::Scope& scope, const std::string& name) {
  const fluid::Value* value = scope.find(name);
  const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
  return tensor != nullptr && tensor->initialized() ? tensor : nullptr;
}

namespace {

std::shared_ptr<fluid::tables::SharedTable> table_in(const fluid::Scope& scope,
                                                     const std::string& name) {
  const fluid::Value* value = scope.find(name);
  return value == nullptr ? nullptr : fluid::tables::table_of(*value);
}

}  // namespace

void require_initial_value(const fluid::Scope& scope, const std::string& slice) {
  if (initialised(scope, slice) != nullptr || table_in(scope, slice) != nullptr) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "a server has no initial value of its slice",
               .where = slice,
               .expected = "the startup program was run on the server's scope",
               .got = "an empty variable",
               .fix = "run the server's startup program, or load a model, before serving"});
}

ParameterEntry parameter_entry(const fluid::Program& program, const fluid::Scope& scope,
                               const std::string& name) {
  ParameterEntry entry;
  entry.name = name;
  if (const auto table = table_in(scope, name)) {
    entry.growing = true;
    entry.shape = {1, static_cast<int64_t>(table->options().width)};
    entry.origin = name;
    entry.origin_shape = entry.shape;
    return entry;
  }
  const fluid::Tensor& tensor = scope.tensor(name);
  entry.dtype = tensor.dtype();
  entry.shape = tensor.shape().to_vector();
  entry.origin = name;
  entry.origin_shape = entry.shape;
  const fluid::VarDesc* desc = program.global_block().find_var(name);
  if (desc != nullptr && desc->slice) {
    entry.origin = desc->slice->origin;
    entry.origin_shape = desc->slice->origin_shape;
    entry.offset = desc->slice->offset;
    entry.row_stride = fluid::row_stride(program, *desc);
    return entry;
  }
  // State that is not cut, but that every slice of its parameter has a copy of.
  for (const auto& row : program.distribution().vars) {
    if (row.slice == name && row.origin != name) entry.origin = row.origin;
  }
  return entry;
}

void set_number(fluid::Tensor& tensor, double value) {
  switch (tensor.dtype()) {
    case fluid::DType::kInt64:
      *tensor.data<int64_t>() = static_cast<int64_t>(value);
      return;
    case fluid::DType::kInt32:
      *tensor.data<int32_t>() = static_cast<int32_t>(value);
      return;
    case fluid::DType::kFloat64:
      *tensor.data<double>() = value;
      return;
    default:
      *tensor.data<float>() = static_cast<float>(value);
  }
}

void make_gradient(const ParameterEntry& entry, fluid::Scope& scope) {
  fluid::Value& gradient = scope.var(entry.gradient);
  fluid::Shape shape(entry.shape);
  if (!entry.rows) {
    gradient.emplace<fluid::Tensor>(entry.dtype, shape);
    return;
  }
  shape.set(0, 0);
  gradient.emplace<fluid::SelectedRows>(fluid::SelectedRows{
      .rows = {}, .height = entry.height(), .value = fluid::Tensor(entry.dtype, shape)});
}

std::vector<std::string> updated_state(const fluid::Program& program, const fluid::Scope& scope,
                                       const std::vector<int32_t>& blocks, const std::string& value,
                                       const std::string& gradient) {
  std::vector<std::string> names;
  for (const int32_t block : blocks) {
    for (const auto& op : program.block(block).ops()) {
      for (const auto& name : op->output_names()) {
        const bool known = name == value || name == gradient ||
                           std::find(names.begin(), names.end(), name) != names.end();
        if (!known && initialised(scope, name) != nullptr) names.push_back(name);
      }
    }
  }
  return names;
}

ValueChange change_by(const fluid::Program& program, int32_t block,
                      const fluid::ServerSlice& slice) {
  const auto writes = [](const fluid::Operator& op, const std::string& name) {
    const std::vector<std::string> names = op.output_names();
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto named_only = [&](const fluid::Operator& op) {
    const auto& claim = fluid::schema_of(program, op).changes_named_rows_only;
    return slice.rows && claim && claim(op.attrs) &&
           op.input("Grad") == std::vector<std::string>{slice.gradient} &&
           op.output("ParamOut") == std::vector<std::string>{slice.value};
  };
  // The mean over contributors keeps the rows of the gradient; others that write it may not.
  int keeping = slice.averages && block == slice.chain.front() ? 1 : 0;
  ValueChange change = ValueChange::kNothing;
  for (const auto& op : program.block(block).ops()) {
    const bool runs_block = fluid::schema_of(program, *op).run_by == fluid::RunBy::kExecutor;
    if (runs_block || (writes(*op, slice.gradient) && --keeping < 0)) return ValueChange::kAll;
    if (!writes(*op, slice.value)) continue;
    if (!named_only(*op)) return ValueChange::kAll;
    change = ValueChange::kNamedRows;
  }
  return change;
}

}  // namespace fleet::strategies

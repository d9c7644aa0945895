#include "tests/fluid/kernels/one_op.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/numbers/half.h"
#include "base/philox.h"
#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/ops/append.h"

namespace fleet::fluid {
namespace {

// Calls visit with a value of the element type.
template <class Visit>
void with_type(DType dtype, Visit visit) {
  const auto try_type = [&]<class T>(T value) {
    if (dtype == dtype_of<T>()) visit(value);
  };
  try_type(false);
  try_type(uint8_t{});
  try_type(int8_t{});
  try_type(int16_t{});
  try_type(int32_t{});
  try_type(int64_t{});
  try_type(0.0f);
  try_type(0.0);
}

Tensor values_of(const Input& input, DType dtype, const std::string& name) {
  Tensor tensor(dtype, input.shape);
  const RandomKey key = RandomKey::of(11, name);
  // Whole numbers in the place of others come from a wider range.
  const double factor = is_floating(input.dtype) && !is_floating(dtype) ? 3 : 1;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double unit = uniform_double(key, static_cast<uint64_t>(i));
    double x = factor * (input.low + (input.high - input.low) * unit);
    if (dtype == DType::kBool) x = unit > 0.5 ? 1 : 0;
    if (!is_floating(dtype)) x = std::floor(x);
    if (dtype == DType::kUInt8) x = std::abs(x);
    set_element(tensor, i, x);
  }
  return tensor;
}

uint16_t* halves(const Tensor& tensor) {
  return reinterpret_cast<uint16_t*>(const_cast<std::byte*>(tensor.raw()));
}

}  // namespace

double element(const Tensor& tensor, int64_t i) {
  if (is_half(tensor.dtype())) {
    const bool brain = tensor.dtype() == DType::kBFloat16;
    float wide = 0;
    (brain ? float_of_bfloat16 : float_of_float16)(halves(tensor) + i, &wide, 1);
    return static_cast<double>(wide);
  }
  double found = 0;
  with_type(tensor.dtype(), [&]<class T>(T) { found = static_cast<double>(tensor.data<T>()[i]); });
  return found;
}

void set_element(Tensor& tensor, int64_t i, double value) {
  if (is_half(tensor.dtype())) {
    const bool brain = tensor.dtype() == DType::kBFloat16;
    const auto wide = static_cast<float>(value);
    (brain ? bfloat16_of_float : float16_of_float)(&wide, halves(tensor) + i, 1);
    return;
  }
  with_type(tensor.dtype(), [&]<class T>(T) { tensor.data<T>()[i] = static_cast<T>(value); });
}

OneOp::OneOp(const OpCase& op_case, DType dtype) : case_(op_case), dtype_(dtype) {
  forward_.type = op_case.type;
  forward_.attrs = op_case.attrs;
  if (!op_case.typed_attribute.empty()) {
    forward_.attrs[op_case.typed_attribute] = std::string(dtype_name(dtype));
  }
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Input& input = op_case.inputs[i];
    const std::string name = str_cat("in", i);
    forward_.inputs[input.slot].push_back(name);
    add_fed(name, input, is_floating(input.dtype) ? dtype : input.dtype);
  }
  for (const std::string& slot : op_case.outputs) {
    for (size_t i = 0; i < op_case.output_copies; ++i) {
      forward_.outputs[slot].push_back(str_cat(slot, i));
      add_var(forward_.outputs[slot].back(), dtype);
    }
  }
  append_op(block(), forward_);
}

std::vector<Tensor> OneOp::run(int position) {
  KernelTable table;
  for (const auto& row : KernelTable::standard().rows()) {
    for (size_t i = 0; i < row.kernels.size(); ++i) {
      const size_t last = row.kernels.size() - 1;
      const size_t first = position < 0 ? last : std::min(static_cast<size_t>(position), last);
      if (i >= first) table.add_last(row.op, row.device, row.dtype, row.kernels[i]);
    }
  }
  Executor executor(CPUPlace(), {.kernels = &table});
  std::vector<Fetch> fetch;
  for (const std::string& slot : case_.outputs) {
    if (slot == "XShape") continue;
    for (size_t i = 0; i < case_.output_copies; ++i) fetch.emplace_back(str_cat(slot, i));
  }
  return executor.run(program_, feed_, fetch);
}

void OneOp::append_loss() {
  std::vector<std::string> parts;
  for (size_t i = 0; i < case_.output_copies; ++i) {
    const std::string out = str_cat(case_.output, i);
    const std::string weight = str_cat("weight", i);
    add_fed(weight, {"", shape_of(out), DType::kFloat64, 0.5, 1.5, false}, DType::kFloat64);
    parts.push_back(str_cat("part", i));
    add_var(str_cat("weighted", i), DType::kFloat64);
    add_var(parts.back(), DType::kFloat64);
    append_op(block(), {.type = "elementwise_mul",
                        .inputs = {{"X", {out}}, {"Y", {weight}}},
                        .outputs = {{"Out", {str_cat("weighted", i)}}},
                        .attrs = {}});
    append_op(block(), {.type = "reduce_sum",
                        .inputs = {{"X", {str_cat("weighted", i)}}},
                        .outputs = {{"Out", {parts.back()}}},
                        .attrs = {{"reduce_all", true}}});
  }
  add_var("loss", DType::kFloat64);
  append_op(block(),
            {.type = "sum", .inputs = {{"X", parts}}, .outputs = {{"Out", {"loss"}}}, .attrs = {}});
  append_backward(Variable(block(), block().var("loss")));
}

std::vector<std::string> OneOp::append_gradients() {
  const OpSchema& schema = OpTable::standard().at(forward_.type);
  const KernelTable& kernels = KernelTable::standard();
  std::vector<std::string> names;
  const auto wanted = [&](const std::string& variable) -> std::string {
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      if (variable == str_cat("in", i) && case_.inputs[i].differentiable) {
        return variable + "@GRAD";
      }
    }
    return {};
  };
  auto ops = schema.gradient(GradContext(forward_, block(), wanted));
  for (const Operator& op : ops) {
    if (kernels.find(op.type, DeviceKind::kCpu, dtype_).empty()) return {};
  }
  for (const std::string& slot : case_.outputs) {
    if (slot != case_.output) continue;
    for (size_t i = 0; i < case_.output_copies; ++i) {
      const std::string out = str_cat(slot, i);
      add_fed(out + "@GRAD", {"", shape_of(out), DType::kFloat64, 0.5, 1.5, false},
              block().var(out).dtype);
    }
  }
  for (Operator& op : ops) {
    for (const auto& [slot, outputs] : op.outputs) {
      for (const std::string& name : outputs) {
        if (name.empty()) continue;
        add_var(name, dtype_);
        names.push_back(name);
      }
    }
    append_op(block(), std::move(op));
  }
  return names;
}

Shape OneOp::shape_of(const std::string& name) {
  Executor executor;
  return fetch(executor, name).shape();
}

Variable OneOp::add_var(const std::string& name, DType dtype) {
  VarDesc var;
  var.name = name;
  var.dtype = dtype;
  return Variable(block(), block().add_var(var));
}

void OneOp::add_fed(const std::string& name, const Input& input, DType dtype) {
  feed_.emplace_back(name, values_of(input, dtype, name));
  VarDesc& var = add_var(name, dtype).edit();
  var.shape = input.shape;
  var.is_data = true;
  var.stop_gradient = !input.differentiable;
}

}  // namespace fleet::fluid

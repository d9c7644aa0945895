#include "fluid/layers/parameters/layer_helper.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/parameters/weight_norm.h"

namespace fleet::fluid {
namespace {

// What an op reads and writes has its first value from another: broadcasts work in place.
bool has_initializer(const Block& startup, const std::string& name) {
  const auto contains = [&name](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return std::any_of(startup.ops().begin(), startup.ops().end(), [&](const auto& op) {
    return contains(op->output_names()) && !contains(op->input_names());
  });
}

}  // namespace

VarDesc describe_parameter(const ParamAttr& attr, std::string name, const Shape& shape,
                           DType dtype) {
  VarDesc desc;
  desc.name = std::move(name);
  desc.dtype = dtype;
  desc.shape = shape;
  desc.persistable = true;
  desc.is_parameter = true;
  desc.trainable = attr.trainable;
  desc.learning_rate = attr.learning_rate;
  desc.regularizer = attr.regularizer;
  desc.gradient_clip = attr.gradient_clip;
  desc.do_model_average = attr.do_model_average.value_or(true);
  return desc;
}

LayerHelper::LayerHelper(std::string type, std::string name)
    : type_(std::move(type)),
      name_(name.empty() ? unique_name::generate(type_) : std::move(name)),
      main_(default_main_program()),
      startup_(default_startup_program()) {}

Variable LayerHelper::temp(DType dtype, bool stop_gradient) const {
  VarDesc desc;
  desc.name = unique_name::generate(name_ + ".tmp");
  desc.dtype = dtype;
  desc.stop_gradient = stop_gradient;
  return Variable(block(), block().add_var(std::move(desc)));
}

Variable LayerHelper::global(VarDesc desc) const {
  return Variable(main_.global_block(), main_.global_block().add_var(std::move(desc)));
}

void LayerHelper::initialize(const Variable& var, const Initializer& how) const {
  VarDesc desc;
  desc.name = var.name();
  desc.kind = var.desc().kind;
  desc.dtype = var.dtype();
  desc.shape = var.shape();
  desc.persistable = true;
  prepend_initializer(startup_, startup_.global_block().add_var(std::move(desc)), how);
}

Variable LayerHelper::parameter(const ParamAttr& attr, const Shape& shape, DType dtype,
                                bool is_bias) const {
  if (!shape.known() || shape.numel() == 0) {
    fail("a parameter's shape must be known and not empty", "positive dimensions",
         shape.to_string(), "declare the input's dimensions, except for the batch");
  }
  std::string name = attr.name;
  if (name.empty()) name = unique_name::generate(name_ + (is_bias ? ".b" : ".w"));
  if (attr.weight_norm) return normalized_weight(*this, attr, name, shape, dtype);
  Block& block = main_.global_block();
  const VarDesc* there = block.find_var(name);
  if (there != nullptr && (!(there->shape == shape) || there->dtype != dtype)) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a shared parameter must have one shape and one element type",
                 .where = str_cat("layer '", type_, "', parameter '", name, "'"),
                 .expected = str_cat(dtype_name(there->dtype), there->shape),
                 .got = str_cat(dtype_name(dtype), shape),
                 .fix = "give this layer's parameter another name, or the same sizes"});
  }
  const VarDesc desc = describe_parameter(attr, name, shape, dtype);
  Block& startup_block = startup_.global_block();
  // Only a variable that was there already may have an op that fills it.
  const bool known = startup_block.find_var(name) != nullptr;
  const VarDesc& startup_var = startup_block.add_var(desc);
  if (!known || !has_initializer(startup_block, name)) {
    const Initializer standard =
        is_bias ? Initializer(initializer::Constant{}) : Initializer(initializer::Xavier{});
    prepend_initializer(startup_, startup_var, attr.initializer.value_or(standard));
  }
  return Variable(block, block.add_var(desc));
}

void LayerHelper::append(std::string type, SlotMap inputs, SlotMap outputs,
                         AttributeMap attrs) const {
  Operator op;
  op.type = std::move(type);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = std::move(attrs);
  append_op(block(), std::move(op));
}

Variable LayerHelper::append_unary(const std::string& op, const Variable& x,
                                   AttributeMap attrs) const {
  const Variable out = temp(x.dtype());
  append(op, {{"X", {x.name()}}}, {{"Out", {out.name()}}}, std::move(attrs));
  return out;
}

Variable LayerHelper::add_bias(const Variable& x, const ParamAttr& attr, int dim_start,
                               int dim_end) const {
  if (attr.omit) return x;
  const int end = dim_end == 0 ? x.shape().rank() : dim_end;
  const auto dims = x.shape().dims().subspan(static_cast<size_t>(dim_start),
                                             static_cast<size_t>(end - dim_start));
  const Variable bias = parameter(attr, Shape(dims), x.dtype(), true);
  const Variable out = temp(x.dtype());
  append("elementwise_add", {{"X", {x.name()}}, {"Y", {bias.name()}}}, {{"Out", {out.name()}}},
         {{"axis", static_cast<int64_t>(dim_start)}});
  return out;
}

Variable LayerHelper::activate(const Variable& x, const std::string& act,
                               AttributeMap attrs) const {
  if (act.empty()) return x;
  static const std::vector<std::string> known = {
      "abs",        "acos",       "asin",     "atan",        "brelu",
      "ceil",       "cos",        "cosh",     "elu",         "erf",
      "exp",        "floor",      "gelu",     "hard_shrink", "hard_sigmoid",
      "hard_swish", "leaky_relu", "log",      "log1p",       "logsigmoid",
      "reciprocal", "relu",       "relu6",    "round",       "rsqrt",
      "sigmoid",    "sin",        "sinh",     "soft_relu",   "softmax",
      "softplus",   "softshrink", "softsign", "sqrt",        "square",
      "stanh",      "swish",      "tanh",     "tanh_shrink", "thresholded_relu"};
  if (std::find(known.begin(), known.end(), act) == known.end()) {
    fail(str_cat("unknown activation '", act, "'", did_you_mean(act, known)), join(known, ", "),
         act, "use a known one, or leave act empty");
  }
  return append_unary(act, x, std::move(attrs));
}

void LayerHelper::check_input(const Variable& x, std::string_view argument) const {
  if (!x) {
    fail(str_cat("argument '", argument, "' is an empty variable"), "what a layer returned",
         "Variable()", "pass a variable");
  }
  if (&x.program() != &main_) {
    fail(str_cat("argument '", argument, "' belongs to another program"),
         "a variable of the default main program", "'" + x.name() + "'",
         "build the layers of one program under one ProgramGuard");
  }
}

void LayerHelper::check_inputs(const std::vector<Variable>& xs, std::string_view argument) const {
  if (xs.empty()) {
    fail(str_cat("argument '", argument, "' has no variables"), "at least one", "none",
         "pass what other layers returned");
  }
  for (const Variable& x : xs) check_input(x, argument);
}

void LayerHelper::fail(std::string what, std::string expected, std::string got,
                       std::string fix) const {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = str_cat("layer '", type_, "' (", name_, ")"),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

}  // namespace fleet::fluid

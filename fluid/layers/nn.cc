#include "fluid/layers/nn.h"

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/loss/loss.h"
#include "fluid/ops/loss/metric.h"
#include "fluid/ops/math/mul.h"

namespace fleet::fluid::layers {
namespace {

Shape with_batch(const Shape& shape, bool append_batch_size) {
  for (int64_t dim : shape) {
    if (dim < 0) return shape;
  }
  if (!append_batch_size) return shape;
  Shape batched{Shape::kUnknown};
  for (int64_t dim : shape) batched.push_back(dim);
  return batched;
}

// x W for one input of fc.
Variable multiply(const LayerHelper& helper, const Variable& x, const ParamAttr& attr, int flatten,
                  int64_t size) {
  const int rank = x.shape().rank();
  if (flatten < 1 || flatten >= rank) {
    helper.fail(str_cat("num_flatten_dims does not fit variable '", x.name(), "'"),
                str_cat("1 to ", rank - 1, " for shape ", x.shape()), str_cat(flatten),
                "leave at least one dimension to multiply");
  }
  if (!is_floating(x.dtype())) {
    helper.fail(str_cat("variable '", x.name(), "' is not floating point"), "float32 or float64",
                std::string(dtype_name(x.dtype())), "cast it first");
  }
  const int64_t columns = x.shape().numel(flatten, rank);
  if (columns < 0) {
    helper.fail(str_cat("the columns of variable '", x.name(), "' are not known"),
                str_cat("known dimensions from ", flatten, " on"), x.shape().to_string(),
                "declare the dimensions in data, or raise num_flatten_dims");
  }
  const Variable w = helper.parameter(attr, Shape{columns, size}, x.dtype(), false);
  const Variable out = helper.temp(x.dtype());
  helper.append("mul", {{"X", {x.name()}}, {"Y", {w.name()}}}, {{"Out", {out.name()}}},
                to_attributes(MulAttrs{.x_num_col_dims = flatten}));
  return out;
}

}  // namespace

Variable data(const std::string& name, const Shape& shape, DType dtype,
              const DataOptions& options) {
  const LayerHelper helper("data", name);
  if (name.empty()) {
    helper.fail("an input needs a name", "a name to feed it by", "''", "name it");
  }
  VarDesc desc;
  desc.name = name;
  desc.dtype = dtype;
  desc.shape = with_batch(shape, options.append_batch_size);
  desc.lod_level = options.lod_level;
  desc.stop_gradient = options.stop_gradient;
  desc.is_data = true;
  if (VarDesc* there = helper.main().global_block().find_var(name)) {
    const bool same = there->is_data && there->dtype == dtype && there->shape == desc.shape;
    if (!same) {
      helper.fail(str_cat("the program already has another variable '", name, "'"),
                  str_cat(dtype_name(there->dtype), there->shape),
                  str_cat(dtype_name(dtype), desc.shape), "choose another name");
    }
    return Variable(helper.main().global_block(), *there);
  }
  return helper.global(std::move(desc));
}

Variable fc(const Variable& x, int64_t size, const FcOptions& options) {
  return fc(std::vector<Variable>{x}, size, options);
}

Variable fc(const std::vector<Variable>& xs, int64_t size, const FcOptions& options) {
  const LayerHelper helper("fc", options.name);
  helper.check_inputs(xs, "input");
  if (size < 1) helper.fail("size must be positive", ">= 1", str_cat(size), "give the width");
  if (!options.param_attrs.empty() && options.param_attrs.size() != xs.size()) {
    helper.fail("param_attrs does not match the inputs", str_cat(xs.size()),
                str_cat(options.param_attrs.size()), "give one per input");
  }
  int flatten = options.num_flatten_dims;
  std::vector<Variable> products;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (flatten == -1) flatten = xs[i].shape().rank() - 1;
    const bool own = !options.param_attrs.empty();
    products.push_back(
        multiply(helper, xs[i], own ? options.param_attrs[i] : options.param_attr, flatten, size));
  }
  Variable total = products.front();
  if (products.size() > 1) {
    total = helper.temp(total.dtype());
    helper.append("sum", {{"X", names_of(products)}}, {{"Out", {total.name()}}});
  }
  return helper.activate(helper.add_bias(total, options.bias_attr, flatten), options.act);
}

Variable softmax(const Variable& x, const SoftmaxOptions& options) {
  const LayerHelper helper("softmax", options.name);
  helper.check_input(x, "input");
  return helper.append_unary("softmax", x, to_attributes(SoftmaxAttrs{.axis = options.axis}));
}

Variable cross_entropy(const Variable& input, const Variable& label,
                       const CrossEntropyOptions& options) {
  const LayerHelper helper(options.soft_label ? "cross_entropy" : "cross_entropy2");
  helper.check_input(input, "input");
  helper.check_input(label, "label");
  const SlotMap inputs = {{"X", {input.name()}}, {"Label", {label.name()}}};
  const Variable loss = helper.temp(input.dtype());
  if (options.soft_label) {
    helper.append(
        "cross_entropy", inputs, {{"Y", {loss.name()}}},
        to_attributes(CrossEntropyAttrs{.soft_label = true, .ignore_index = options.ignore_index}));
    return loss;
  }
  const Variable shape = helper.temp(input.dtype());
  const Variable match = helper.temp(input.dtype());
  helper.append("cross_entropy2", inputs,
                {{"Y", {loss.name()}}, {"XShape", {shape.name()}}, {"MatchX", {match.name()}}},
                to_attributes(CrossEntropy2Attrs{.ignore_index = options.ignore_index}));
  return loss;
}

LossAndSoftmax softmax_with_cross_entropy_full(const Variable& logits, const Variable& label,
                                               const SoftmaxWithCrossEntropyOptions& options) {
  const LayerHelper helper("softmax_with_cross_entropy");
  helper.check_input(logits, "logits");
  helper.check_input(label, "label");
  const Variable probabilities = helper.temp(logits.dtype());
  const Variable loss = helper.temp(logits.dtype());
  const SoftmaxWithCrossEntropyAttrs attrs{.soft_label = options.soft_label,
                                           .numeric_stable_mode = options.numeric_stable_mode,
                                           .ignore_index = options.ignore_index,
                                           .axis = options.axis};
  helper.append(
      "softmax_with_cross_entropy", {{"Logits", {logits.name()}}, {"Label", {label.name()}}},
      {{"Softmax", {probabilities.name()}}, {"Loss", {loss.name()}}}, to_attributes(attrs));
  return {loss, probabilities};
}

Variable softmax_with_cross_entropy(const Variable& logits, const Variable& label,
                                    const SoftmaxWithCrossEntropyOptions& options) {
  return softmax_with_cross_entropy_full(logits, label, options).loss;
}

Variable square_error_cost(const Variable& input, const Variable& label) {
  const LayerHelper helper("square_error_cost");
  helper.check_input(input, "input");
  helper.check_input(label, "label");
  const Variable difference = helper.temp(input.dtype());
  helper.append("elementwise_sub", {{"X", {input.name()}}, {"Y", {label.name()}}},
                {{"Out", {difference.name()}}});
  return helper.append_unary("square", difference);
}

Variable mean(const Variable& x, const std::string& name) {
  const LayerHelper helper("mean", name);
  helper.check_input(x, "x");
  return helper.append_unary("mean", x);
}

TopK topk(const Variable& input, const Number& k, const std::string& name) {
  const LayerHelper helper("top_k", name);
  helper.check_input(input, "input");
  SlotMap inputs = {{"X", {input.name()}}};
  const TopKAttrs attrs{.k = static_cast<int32_t>(k.attribute(helper, "K", inputs, 1))};
  const Variable values = helper.temp(input.dtype());
  const Variable indices = helper.temp(DType::kInt64);
  helper.append("top_k", std::move(inputs),
                {{"Out", {values.name()}}, {"Indices", {indices.name()}}}, to_attributes(attrs));
  values.set_stop_gradient(true);
  indices.set_stop_gradient(true);
  return {values, indices};
}

Variable accuracy(const Variable& input, const Variable& label, int k) {
  const LayerHelper helper("accuracy");
  helper.check_input(input, "input");
  helper.check_input(label, "label");
  const TopK top = topk(input, k);
  const Variable result = helper.temp(DType::kFloat32);
  const Variable correct = helper.temp(DType::kInt32);
  const Variable total = helper.temp(DType::kInt32);
  helper.append(
      "accuracy",
      {{"Out", {top.values.name()}}, {"Indices", {top.indices.name()}}, {"Label", {label.name()}}},
      {{"Accuracy", {result.name()}}, {"Correct", {correct.name()}}, {"Total", {total.name()}}});
  return result;
}

}  // namespace fleet::fluid::layers

#include "fluid/ops/nn/norm.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/schema_util.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {
namespace {

std::string where_of(const InferContext& context) {
  return str_cat("op '", context.op().type, "', slot 'X', variable '", context.input("X").name,
                 "'");
}

// One element per channel, or column, in each of the slots that are filled.
// Vectors of X's channels, of `dtype`.
void check_vectors(const InferContext& context, std::initializer_list<const char*> slots,
                   int64_t length, DType dtype) {
  for (const char* slot : slots) {
    if (!context.has_input(slot)) continue;
    const Shape& shape = context.input(slot).shape;
    context.require(length < 0 || shape.numel() == length, slot, str_cat("[", length, "]"),
                    shape.to_string(), "make it with one element per channel of X");
    context.require_dtype(slot, dtype);
  }
}

void check_x(const InferContext& context, int least_rank) {
  const VarDesc& x = context.input("X");
  context.require(x.shape.rank() >= least_rank, "X",
                  str_cat("at least ", least_rank, " dimensions"), x.shape.to_string());
  context.require(is_floating(x.dtype), "X", "floating point", std::string(dtype_name(x.dtype)),
                  "cast it first");
}

// Of X, or float32 where X has 16 bits and Scale has not.
DType statistics_dtype(const InferContext& context) {
  const DType x = context.input("X").dtype;
  const bool half = x == DType::kFloat16 || x == DType::kBFloat16;
  return half && context.input("Scale").dtype == DType::kFloat32 ? DType::kFloat32 : x;
}

void infer_batch_norm(InferContext& context) {
  check_x(context, 2);
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<BatchNormAttrs>();
  context.require(attrs.epsilon >= 0 && attrs.epsilon <= 1.001e-3f, "X", "epsilon in [0, 0.001]",
                  str_cat(attrs.epsilon), "choose a smaller epsilon");
  const int64_t channels =
      x.shape[channel_axis(attrs.data_layout, x.shape.rank(), where_of(context))];
  const DType dtype = statistics_dtype(context);
  check_vectors(context, {"Scale", "Bias", "Mean", "Variance"}, channels, dtype);
  require_number(context, "MomentumTensor", DType::kFloat32);
  context.share("X", "Y");
  for (const char* slot : {"MeanOut", "VarianceOut", "SavedMean", "SavedVariance"}) {
    context.set_output(slot, Shape{channels}, dtype);
  }
  context.set_output("ReserveSpace", Shape{Shape::kUnknown}, dtype);
}

std::vector<Operator> batch_norm_gradient(const GradContext& context) {
  GradSpec spec{.inputs = {"X", "Scale", "Bias"},
                .outputs = {"SavedMean", "SavedVariance"},
                .incoming = {"Y"},
                .wanted = {"X", "Scale", "Bias"}};
  const auto attrs = parse_attributes<BatchNormAttrs>("batch_norm", context.forward().attrs);
  if (attrs.use_global_stats) {
    spec.inputs.insert(spec.inputs.end(), {"Mean", "Variance"});
  }
  return usual_gradient(spec)(context);
}

void infer_layer_norm(InferContext& context) {
  check_x(context, 2);
  const VarDesc& x = context.input("X");
  const int axis = context.attrs<LayerNormAttrs>().begin_norm_axis;
  context.require(axis >= 1 && axis < x.shape.rank(), "X",
                  str_cat("begin_norm_axis in [1, ", x.shape.rank(), ")"), str_cat(axis),
                  "leave at least one dimension to normalise over");
  check_vectors(context, {"Scale", "Bias"}, x.shape.numel(axis, x.shape.rank()), x.dtype);
  context.share("X", "Y");
  const int64_t rows = flat_size(x.shape, 0, axis);
  for (const char* slot : {"Mean", "Variance"}) context.set_output(slot, Shape{rows}, x.dtype);
}

void infer_group_norm(InferContext& context) {
  check_x(context, 2);
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<GroupNormAttrs>();
  const int64_t channels =
      x.shape[channel_axis(attrs.data_layout, x.shape.rank(), where_of(context))];
  context.require(groups_fit(channels, attrs.groups), "X", fitting_groups(attrs.groups),
                  x.shape.to_string(), "choose groups that divide the channels");
  check_vectors(context, {"Scale", "Bias"}, channels, x.dtype);
  context.share("X", "Y");
  for (const char* slot : {"Mean", "Variance"}) {
    context.set_output(slot, Shape{x.shape[0], attrs.groups}, x.dtype);
  }
}

GradSpec row_gradient() {
  return {.inputs = {"X", "Scale", "Bias"},
          .outputs = {"Mean", "Variance"},
          .incoming = {"Y"},
          .wanted = {"X", "Scale", "Bias"}};
}

std::vector<Operator> group_norm_gradient(const GradContext& context) {
  const auto attrs = parse_attributes<GroupNormAttrs>("group_norm", context.forward().attrs);
  GradSpec spec = row_gradient();
  if (attrs.paddle_form) {
    spec.inputs = {"Scale", "Bias"};
    spec.outputs = {"Y", "Variance"};
  }
  return usual_gradient(spec)(context);
}

void infer_group_norm_grad(InferContext& context) {
  const bool paddle_form = context.attrs<GroupNormAttrs>().paddle_form;
  for (const char* slot : {"X", "Mean"}) {
    context.require(paddle_form || context.has_input(slot), slot, "a variable", "none",
                    "give it, or set paddle_form and give Y");
  }
  context.require(!paddle_form || context.has_input("Y"), "Y", "a variable", "none",
                  "give it, or unset paddle_form and give X and Mean");
  infer_like({{"Y@GRAD", "X@GRAD"}, {"Scale", "Scale@GRAD"}, {"Bias", "Bias@GRAD"}})(context);
}

void add_row_norms(OpTable& table) {
  const std::vector<SlotSpec> inputs = {one("X"), maybe("Scale"), maybe("Bias")};
  const std::vector<SlotSpec> outputs = {one("Y"), one("Mean"), one("Variance")};
  const std::vector<SlotSpec> grads = {maybe("X@GRAD"), maybe("Scale@GRAD"), maybe("Bias@GRAD")};
  table.add(make_schema<LayerNormAttrs>("layer_norm", inputs, outputs, infer_layer_norm,
                                        usual_gradient(row_gradient())));
  table.add(make_schema<LayerNormAttrs>(
      "layer_norm_grad",
      {one("X"), maybe("Scale"), maybe("Bias"), one("Mean"), one("Variance"), one("Y@GRAD")}, grads,
      infer_like({{"X", "X@GRAD"}, {"Scale", "Scale@GRAD"}, {"Bias", "Bias@GRAD"}})));
  table.add(make_schema<GroupNormAttrs>("group_norm", inputs, outputs, infer_group_norm,
                                        group_norm_gradient));
  table.add(
      make_schema<GroupNormAttrs>("group_norm_grad",
                                  {typed(maybe("X")), maybe("Y"), maybe("Scale"), maybe("Bias"),
                                   maybe("Mean"), one("Variance"), typed(one("Y@GRAD"))},
                                  grads, infer_group_norm_grad));
}

}  // namespace

int64_t group_channels(int64_t channels, int32_t groups) {
  return (channels + groups - 1) / groups;
}

bool groups_fit(int64_t channels, int32_t groups) {
  if (groups < 1 || channels < 0) return groups >= 1;
  return (groups - 1) * group_channels(channels, groups) < channels;
}

std::string fitting_groups(int32_t groups) {
  return str_cat("channels that ", groups, " groups divide, or of which the last has some");
}

int channel_axis(std::string_view data_layout, int rank, std::string_view where) {
  if (data_layout == "NHWC") return rank - 1;
  if (data_layout == "NCHW" || data_layout == "AnyLayout") return rank > 1 ? 1 : 0;
  throw_error(ErrorCode::kInvalidArgument, {.what = "an unknown layout of images",
                                            .where = std::string(where),
                                            .expected = "data_layout NCHW or NHWC",
                                            .got = std::string(data_layout),
                                            .fix = "use one of the two"});
}

void add_norm_ops(OpTable& table) {
  table.add(make_schema<BatchNormAttrs>(
      "batch_norm",
      {one("X"), one("Scale"), one("Bias"), one("Mean"), one("Variance"), maybe("MomentumTensor")},
      {one("Y"), one("MeanOut"), one("VarianceOut"), one("SavedMean"), one("SavedVariance"),
       maybe("ReserveSpace")},
      infer_batch_norm, batch_norm_gradient));
  table.add(make_schema<BatchNormAttrs>(
      "batch_norm_grad",
      {one("X"), one("Scale"), one("Bias"), one("SavedMean"), one("SavedVariance"), one("Y@GRAD"),
       maybe("Mean"), maybe("Variance")},
      {maybe("X@GRAD"), maybe("Scale@GRAD"), maybe("Bias@GRAD")},
      infer_like({{"X", "X@GRAD"}, {"Scale", "Scale@GRAD"}, {"Bias", "Bias@GRAD"}})));
  add_row_norms(table);
}

}  // namespace fleet::fluid

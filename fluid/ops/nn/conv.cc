#include "fluid/ops/nn/conv.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

std::string where_of(const InferContext& context, std::string_view slot) {
  return str_cat("op '", context.op().type, "', slot '", slot, "', variable '",
                 context.input(slot).name, "'");
}

Shape image_shape(const ImageAxes& axes, int64_t batch, int64_t channels, int64_t height,
                  int64_t width) {
  Shape shape{batch, 0, 0, 0};
  shape.set(axes.channels, channels);
  shape.set(axes.height, height);
  shape.set(axes.width, width);
  return shape;
}

// Input and Filter of a convolution: ranks, types, channels. `per_group` is the filter's dimension
// of the channels that it reads, `whole` the one of all channels on the other side.
void check_conv(const InferContext& context, const Conv2dAttrs& attrs, bool transposed) {
  for (const char* slot : {"Bias", "ResidualData"}) {
    context.require(!context.has_input(slot), slot,
                    "an empty slot, which only fusing passes of Paddle fill",
                    "[" + join(context.op().input(slot), ", ") + "]",
                    "add it behind the convolution by elementwise_add");
  }
  const VarDesc& input = context.input("Input");
  const VarDesc& filter = context.input("Filter");
  context.require(input.shape.rank() == 4, "Input", "an image batch of four dimensions",
                  input.shape.to_string());
  context.require(filter.shape.rank() == 4, "Filter", "four dimensions", filter.shape.to_string());
  context.require(is_floating(input.dtype), "Input", "floating point",
                  std::string(dtype_name(input.dtype)), "cast it first");
  context.require_dtype("Filter", input.dtype);
  const ImageAxes axes = image_axes(attrs.data_format, where_of(context, "Input"));
  const int64_t channels = input.shape[axes.channels];
  context.require(attrs.groups >= 1, "Filter", "groups of at least 1", str_cat(attrs.groups));
  if (transposed) {
    context.require(channels < 0 || filter.shape[0] == channels, "Filter",
                    str_cat("[", channels, ", outputs / groups, height, width]"),
                    filter.shape.to_string());
    return;
  }
  context.require(channels < 0 || filter.shape[1] * attrs.groups == channels, "Filter",
                  str_cat("[outputs, ", channels, " / ", attrs.groups, ", height, width]"),
                  filter.shape.to_string(), "let groups divide the channels of the input");
  context.require(filter.shape[0] % attrs.groups == 0, "Filter",
                  str_cat("outputs that ", attrs.groups, " groups divide"),
                  filter.shape.to_string());
}

void infer_conv2d(InferContext& context) {
  const auto attrs = context.attrs<Conv2dAttrs>();
  check_conv(context, attrs, false);
  const VarDesc& input = context.input("Input");
  const VarDesc& filter = context.input("Filter");
  const std::string where = where_of(context, "Input");
  const ImageAxes axes = image_axes(attrs.data_format, where);
  const Window window = conv_window(attrs, input.shape, filter.shape, where);
  const Shape out =
      image_shape(axes, input.shape[0], filter.shape[0], window[0].out, window[1].out);
  context.set_output("Output", out, input.dtype);
}

void infer_conv2d_transpose(InferContext& context) {
  const auto attrs = context.attrs<Conv2dTransposeAttrs>();
  check_conv(context, attrs, true);
  const VarDesc& input = context.input("Input");
  const VarDesc& filter = context.input("Filter");
  const std::string where = where_of(context, "Input");
  const ImageAxes axes = image_axes(attrs.data_format, where);
  const Window window = conv_transpose_window(attrs, input.shape, filter.shape, where);
  const Shape out =
      image_shape(axes, input.shape[0], filter.shape[1] * attrs.groups, window[0].in, window[1].in);
  context.set_output("Output", out, input.dtype);
}

Shape pooled_shape(const InferContext& context, const Pool2dAttrs& attrs) {
  const Shape& x = context.input("X").shape;
  context.require(x.rank() == 4, "X", "an image batch of four dimensions", x.to_string());
  const std::string where = where_of(context, "X");
  const ImageAxes axes = image_axes(attrs.data_format, where);
  const Window window = pool_window(attrs, x, where);
  return image_shape(axes, x[0], x[axes.channels], window[0].out, window[1].out);
}

void infer_pool2d(InferContext& context) {
  const auto attrs = context.attrs<Pool2dAttrs>();
  context.require(attrs.pooling_type == "max" || attrs.pooling_type == "avg", "X",
                  "pooling_type max or avg", attrs.pooling_type, "use one of the two");
  context.set_output("Out", pooled_shape(context, attrs), context.input("X").dtype);
}

void infer_max_pool2d_with_index(InferContext& context) {
  const Shape out = pooled_shape(context, context.attrs<MaxPoolWithIndexAttrs>().windows());
  for (const char* slot : {"Out", "Mask"}) {
    context.set_output(slot, out, context.input("X").dtype);
  }
}

// Each element of the output is a product with a whole filter of one of its channels.
double conv_flops(const RunShapes& run, const std::vector<int64_t>& out, double times) {
  const auto filter = run.input("Filter");
  if (filter.size() != 4) return 0;
  return times * element_count(out) * static_cast<double>(filter[1] * filter[2] * filter[3]);
}

double forward_flops(const RunShapes& run) {
  return conv_flops(run, run.output("Output"), 2);
}

// Two convolutions of the same size.
double gradient_flops(const RunShapes& run) {
  return conv_flops(run, run.input("Output@GRAD"), 4);
}

template <class Attrs>
void add_conv(OpTable& table, const std::string& type, InferFunction infer,
              const std::vector<SlotSpec>& more_inputs, bool counts) {
  std::vector<SlotSpec> inputs = {one("Input"), one("Filter"), maybe("Bias")};
  inputs.insert(inputs.end(), more_inputs.begin(), more_inputs.end());
  OpSchema conv = make_schema<Attrs>(type, inputs, {one("Output")}, std::move(infer),
                                     usual_gradient({.inputs = {"Input", "Filter", "Bias"},
                                                     .incoming = {"Output"},
                                                     .wanted = {"Input", "Filter", "Bias"}}));
  OpSchema gradient = make_schema<Attrs>(
      type + "_grad", {one("Input"), one("Filter"), maybe("Bias"), one("Output@GRAD")},
      {maybe("Input@GRAD"), maybe("Filter@GRAD"), maybe("Bias@GRAD")},
      infer_like({{"Input", "Input@GRAD"}, {"Filter", "Filter@GRAD"}, {"Bias", "Bias@GRAD"}}));
  if (counts) {
    conv.flops = forward_flops;
    gradient.flops = gradient_flops;
  }
  table.add(std::move(conv));
  table.add(std::move(gradient));
}

WindowAttrs window_attrs(const Conv2dAttrs& attrs, const Shape& filter) {
  return {.kernel = {static_cast<int32_t>(filter[2]), static_cast<int32_t>(filter[3])},
          .strides = attrs.strides,
          .paddings = attrs.paddings,
          .dilations = attrs.dilations,
          .padding_algorithm = attrs.padding_algorithm};
}

}  // namespace

Window conv_window(const Conv2dAttrs& attrs, const Shape& input, const Shape& filter,
                   std::string_view where) {
  const ImageAxes axes = image_axes(attrs.data_format, where);
  return make_window(window_attrs(attrs, filter), {input[axes.height], input[axes.width]}, where);
}

Window conv_transpose_window(const Conv2dTransposeAttrs& attrs, const Shape& input,
                             const Shape& filter, std::string_view where) {
  const ImageAxes axes = image_axes(attrs.data_format, where);
  return make_transposed_window(window_attrs(attrs, filter),
                                {input[axes.height], input[axes.width]}, attrs.output_size, where);
}

Window pool_window(const Pool2dAttrs& attrs, const Shape& x, std::string_view where) {
  const ImageAxes axes = image_axes(attrs.data_format, where);
  const std::array<int64_t, 2> image = {x[axes.height], x[axes.width]};
  WindowAttrs window = {.kernel = attrs.ksize,
                        .strides = attrs.strides,
                        .paddings = attrs.paddings,
                        .padding_algorithm = attrs.padding_algorithm,
                        .ceil_mode = attrs.ceil_mode};
  if (attrs.global_pooling) {
    Window whole;
    for (size_t d = 0; d < 2; ++d) {
      whole[d] = {.in = image[d], .kernel = image[d], .stride = 1, .out = 1};
    }
    return whole;
  }
  if (attrs.adaptive) {
    window.paddings = {0, 0};
    window.strides = {1, 1};
    window.padding_algorithm = "EXPLICIT";
    window.kernel = {1, 1};
    Window sized = make_window(window, image, where);
    window.kernel = attrs.ksize;
    // For the check of the list only.
    static_cast<void>(make_window(window, {-1, -1}, where));
    for (size_t d = 0; d < 2; ++d) {
      sized[d].kernel = sized[d].out = attrs.ksize[d];
      sized[d].stride = attrs.strides[d];
    }
    return sized;
  }
  return make_window(window, image, where);
}

void add_conv_ops(OpTable& table) {
  for (const char* type : {"conv2d", "depthwise_conv2d"}) {
    add_conv<Conv2dAttrs>(table, type, infer_conv2d, {maybe("ResidualData")}, true);
  }
  for (const char* type : {"conv2d_transpose", "depthwise_conv2d_transpose"}) {
    add_conv<Conv2dTransposeAttrs>(table, type, infer_conv2d_transpose, {}, false);
  }
  table.add(make_schema<Pool2dAttrs>("pool2d", {one("X")}, {one("Out")}, infer_pool2d,
                                     usual_gradient({.inputs = {"X"}, .outputs = {"Out"}})));
  table.add(make_schema<Pool2dAttrs>("pool2d_grad", {one("X"), one("Out"), one("Out@GRAD")},
                                     {one("X@GRAD")}, infer_like({{"X", "X@GRAD"}})));
  table.add(make_schema<MaxPoolWithIndexAttrs>(
      "max_pool2d_with_index", {one("X")}, {one("Out"), one("Mask")}, infer_max_pool2d_with_index,
      usual_gradient({.inputs = {"X"}, .outputs = {"Mask"}})));
  table.add(make_schema<MaxPoolWithIndexAttrs>("max_pool2d_with_index_grad",
                                               {one("X"), one("Mask"), one("Out@GRAD")},
                                               {one("X@GRAD")}, infer_like({{"X", "X@GRAD"}})));
}

}  // namespace fleet::fluid

#include "fluid/layers/conv.h"

#include <cmath>

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/nn/conv.h"

namespace fleet::fluid::layers {
namespace {

std::vector<int32_t> list(Pair pair) {
  return {pair.height, pair.width};
}

bool channels_last(const std::string& data_format) {
  return data_format == "NHWC";
}

// Channels of an image batch; fails unless they are known and the groups divide them.
int64_t channels_of(const LayerHelper& helper, const Variable& input, int groups,
                    const std::string& data_format) {
  helper.check_input(input, "input");
  const Shape& shape = input.shape();
  const int axis = channels_last(data_format) ? 3 : 1;
  if (shape.rank() != 4 || shape[axis] < 1) {
    helper.fail(str_cat("variable '", input.name(), "' is not an image batch"),
                str_cat("four dimensions, known channels (", data_format, ")"), shape.to_string(),
                "declare it as {channels, height, width} in data, or reshape it");
  }
  if (groups < 1 || shape[axis] % groups != 0) {
    helper.fail("groups do not divide the channels", str_cat("a divisor of ", shape[axis]),
                str_cat(groups), "choose other groups");
  }
  return shape[axis];
}

template <class Options>
Conv2dAttrs common_attrs(const Options& options) {
  Conv2dAttrs attrs;
  attrs.strides = list(options.stride);
  attrs.paddings = options.padding.values;
  attrs.padding_algorithm = options.padding.algorithm;
  attrs.dilations = list(options.dilation);
  attrs.groups = options.groups;
  attrs.data_format = options.data_format;
  attrs.use_cudnn = options.use_cudnn;
  return attrs;
}

// The op, then bias per channel and activation.
template <class Options>
Variable finish(const LayerHelper& helper, const Variable& input, const Variable& filter,
                AttributeMap attrs, const Options& options) {
  const Variable out = helper.temp(input.dtype());
  helper.append(helper.type(), {{"Input", {input.name()}}, {"Filter", {filter.name()}}},
                {{"Output", {out.name()}}}, std::move(attrs));
  const int axis = channels_last(options.data_format) ? 3 : 1;
  const Variable shifted = helper.add_bias(out, options.bias_attr, axis, axis + 1);
  return helper.activate(shifted, options.act, {{"use_cudnn", options.use_cudnn}});
}

}  // namespace

Padding::Padding(int top, int bottom, int left, int right) : values{top, bottom, left, right} {
  if (top == bottom && left == right) values = {top, left};
}

Variable conv2d(const Variable& input, int64_t num_filters, Pair filter_size,
                const Conv2dOptions& options) {
  const bool last = channels_last(options.data_format);
  const bool image = input && input.shape().rank() == 4;
  const int64_t seen = image ? input.shape()[last ? 3 : 1] : 0;
  const bool depthwise =
      image && seen == options.groups && num_filters % options.groups == 0 && !options.use_cudnn;
  const LayerHelper helper(depthwise ? "depthwise_conv2d" : "conv2d", options.name);
  const int64_t channels = channels_of(helper, input, options.groups, options.data_format);
  if (num_filters < 1 || num_filters % options.groups != 0) {
    helper.fail("num_filters does not fit the groups", str_cat("a multiple of ", options.groups),
                str_cat(num_filters), "choose other num_filters");
  }
  if (filter_size.height < 1 || filter_size.width < 1) {
    helper.fail("filter_size must be positive", ">= 1",
                str_cat(filter_size.height, " x ", filter_size.width), "give the window's size");
  }
  ParamAttr attr = options.param_attr;
  if (!attr.initializer) {
    const auto fan = static_cast<double>(filter_size.height * filter_size.width * channels);
    attr.initializer = initializer::Normal{.loc = 0.0, .scale = std::sqrt(2.0 / fan)};
  }
  const Shape shape{num_filters, channels / options.groups, filter_size.height, filter_size.width};
  const Variable filter = helper.parameter(attr, shape, input.dtype(), false);
  return finish(helper, input, filter, to_attributes(common_attrs(options)), options);
}

Variable conv2d_transpose(const Variable& input, int64_t num_filters,
                          const Conv2dTransposeOptions& options) {
  const bool last = channels_last(options.data_format);
  const bool image = input && input.shape().rank() == 4;
  const bool depthwise = image && input.shape()[last ? 3 : 1] == options.groups &&
                         num_filters == options.groups && !options.use_cudnn;
  const LayerHelper helper(depthwise ? "depthwise_conv2d_transpose" : "conv2d_transpose",
                           options.name);
  const int64_t channels = channels_of(helper, input, options.groups, options.data_format);
  if (num_filters < 1 || num_filters % options.groups != 0) {
    helper.fail("num_filters does not fit the groups", str_cat("a multiple of ", options.groups),
                str_cat(num_filters), "choose other num_filters");
  }
  Conv2dTransposeAttrs attrs;
  static_cast<Conv2dAttrs&>(attrs) = common_attrs(options);
  if (options.output_size) attrs.output_size = list(*options.output_size);
  std::vector<int64_t> kernel;
  if (options.filter_size) {
    kernel = {options.filter_size->height, options.filter_size->width};
  } else if (!options.output_size) {
    helper.fail("neither output_size nor filter_size is given", "one of them", "none",
                "give filter_size");
  } else {
    for (size_t d = 0; d < 2; ++d) {
      const int64_t in = input.shape()[static_cast<int>(d) + (last ? 1 : 2)];
      if (in < 0) {
        helper.fail("the filter's size needs a known image", "known height and width",
                    input.shape().to_string(), "give filter_size");
      }
      const auto& pads = attrs.paddings;
      const int64_t pad = pads.size() == 4 ? pads[2 * d] + pads[2 * d + 1] : 2 * pads[d];
      const int64_t extent = attrs.output_size[d] - (in - 1) * attrs.strides[d] + pad;
      kernel.push_back((extent - 1) / attrs.dilations[d] + 1);
    }
  }
  const Shape shape{channels, num_filters / options.groups, kernel[0], kernel[1]};
  const Variable filter = helper.parameter(options.param_attr, shape, input.dtype(), false);
  return finish(helper, input, filter, to_attributes(attrs), options);
}

Variable pool2d(const Variable& input, const Pool2dOptions& options) {
  const LayerHelper helper("pool2d", options.name);
  helper.check_input(input, "input");
  const Pool2dAttrs attrs{.pooling_type = options.pool_type,
                          .ksize = list(options.pool_size),
                          .global_pooling = options.global_pooling,
                          .strides = list(options.pool_stride),
                          .paddings = options.pool_padding.values,
                          .padding_algorithm = options.pool_padding.algorithm,
                          .exclusive = options.exclusive,
                          .ceil_mode = options.ceil_mode,
                          .data_format = options.data_format,
                          .use_cudnn = options.use_cudnn};
  return helper.append_unary("pool2d", input, to_attributes(attrs));
}

MaxPooled adaptive_pool2d(const Variable& input, Pair pool_size, RequireIndex /*require*/,
                          const std::string& name) {
  const LayerHelper helper("max_pool2d_with_index", name);
  helper.check_input(input, "input");
  const MaxPooled pooled{.out = helper.temp(input.dtype()), .mask = helper.temp(input.dtype())};
  helper.append(helper.type(), {{"X", {input.name()}}},
                {{"Out", {pooled.out.name()}}, {"Mask", {pooled.mask.name()}}},
                to_attributes(MaxPoolWithIndexAttrs{.ksize = list(pool_size), .adaptive = true}));
  return pooled;
}

Variable adaptive_pool2d(const Variable& input, Pair pool_size, const std::string& pool_type,
                         const std::string& name) {
  if (pool_type == "max") return adaptive_pool2d(input, pool_size, RequireIndex(), name).out;
  const LayerHelper helper("pool2d", name);
  helper.check_input(input, "input");
  const Pool2dAttrs attrs{.pooling_type = pool_type, .ksize = list(pool_size), .adaptive = true};
  return helper.append_unary("pool2d", input, to_attributes(attrs));
}

}  // namespace fleet::fluid::layers

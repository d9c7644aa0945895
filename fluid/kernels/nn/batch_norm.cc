#include "fluid/kernels/nn/batch_norm.h"

#include "base/strings.h"

namespace fleet::fluid {

Channels channels_of(const PrepareContext& context, const BatchNormAttrs& attrs) {
  const Shape& x = context.in("X").shape;
  const std::string where = str_cat("op '", context.op().type, "', slot 'X', variable '",
                                    context.op().input("X").front(), "'");
  context.require(x.rank() >= 2, "X", "at least two dimensions", x.to_string());
  const int axis = channel_axis(attrs.data_layout, x.rank(), where);
  return {.outer = x.numel(0, axis), .count = x[axis], .inner = x.numel(axis + 1, x.rank())};
}

BatchNormSlots batch_norm_of(PrepareContext& context, DType images, DType dtype) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  const Channels channels = channels_of(context, attrs);
  const Shape vector{channels.count};
  for (const char* slot : {"Scale", "Bias", "Mean", "Variance"}) {
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == dtype && spec.shape.numel() == channels.count, slot,
                    str_cat(dtype_name(dtype), vector),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
  return {.attrs = attrs,
          .channels = channels,
          .x = context.input("X"),
          .scale = context.input("Scale"),
          .bias = context.input("Bias"),
          .mean = context.input("Mean"),
          .variance = context.input("Variance"),
          .momentum = context.input("MomentumTensor"),
          .y = context.set_output("Y", context.in("X").shape, images),
          .mean_out = context.set_output("MeanOut", vector, dtype),
          .variance_out = context.set_output("VarianceOut", vector, dtype),
          .saved_mean = context.set_output("SavedMean", vector, dtype),
          .saved_variance = context.set_output("SavedVariance", vector, dtype)};
}

BatchNormBackSlots batch_norm_back_of(PrepareContext& context, DType images, DType dtype) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  const Channels channels = channels_of(context, attrs);
  context.require(!attrs.is_test || attrs.use_global_stats || attrs.trainable_statistics, "X",
                  "batch_norm with is_test off, or use_global_stats, for a gradient", "is_test");
  const Shape& shape = context.in("X").shape;
  const bool global = attrs.global_stats();
  const Shape vector{channels.count};
  context.require(context.in("Y@GRAD").shape == shape, "Y@GRAD", shape.to_string(),
                  context.in("Y@GRAD").shape.to_string());
  return {.attrs = attrs,
          .channels = channels,
          .x = context.input("X"),
          .scale = context.input("Scale"),
          .mean = context.input(global ? "Mean" : "SavedMean"),
          .variance = context.input(global ? "Variance" : "SavedVariance"),
          .grad = context.input("Y@GRAD"),
          .x_grad = context.set_output("X@GRAD", shape, images),
          .scale_grad = context.set_output("Scale@GRAD", vector, dtype),
          .bias_grad = context.set_output("Bias@GRAD", vector, dtype)};
}

}  // namespace fleet::fluid

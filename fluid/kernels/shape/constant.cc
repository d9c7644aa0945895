#include "fluid/kernels/shape/constant.h"

#include "fluid/ops/shape/fill.h"

namespace fleet::fluid {

BatchFill batch_fill_of(PrepareContext& context) {
  const auto attrs = context.attrs<FillConstantBatchSizeLikeAttrs>();
  const Shape& input = context.in("Input").shape;
  context.require(attrs.input_dim_idx >= 0 && attrs.input_dim_idx < input.rank(), "Input",
                  str_cat("more than ", attrs.input_dim_idx, " dimensions (input_dim_idx)"),
                  input.to_string());
  const VarDesc* desc = context.input_var("Input");
  BatchFill fill{.shape = Shape(attrs.shape),
                 .dtype = attrs.dtype,
                 .rows = attrs.output_dim_idx,
                 .sequences = desc != nullptr && desc->lod_level > 0 && attrs.input_dim_idx == 0,
                 .input = context.input("Input")};
  fill.shape.set(attrs.output_dim_idx, input[attrs.input_dim_idx]);
  fill.out = context.own_output("Out");
  return fill;
}

Tensor& BatchFill::output(const KernelContext& c) const {
  Shape wanted = shape;
  const LoD& lod = c.input(input).lod();
  if (sequences && !lod.empty()) {
    wanted.set(rows, static_cast<int64_t>(lod.back().size()) - 1);
  }
  return c.make_dense(out, dtype, wanted);
}

}  // namespace fleet::fluid

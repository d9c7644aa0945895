#include "fluid/kernels/shape/row_ops.h"

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/shape/index_ops.h"

namespace fleet::fluid {
namespace {

IndexInput index_input(const PrepareContext& context, const char* slot) {
  const ValueSpec& spec = context.in(slot);
  const bool wide = spec.dtype == DType::kInt64;
  context.require(wide || spec.dtype == DType::kInt32, slot, "int32 or int64",
                  std::string(dtype_name(spec.dtype)));
  return {.input = context.input(slot), .wide = wide, .count = spec.shape.numel()};
}

const Shape& rows_of(const PrepareContext& context, const char* slot) {
  const Shape& shape = context.in(slot).shape;
  context.require(shape.rank() >= 1, slot, "rows", shape.to_string());
  return shape;
}

int input_rows(const PrepareContext& context, const char* slot, int64_t rows, int64_t width) {
  const Shape& shape = context.in(slot).shape;
  context.require(shape.numel() == rows * width, slot, str_cat(rows, " rows of ", width),
                  shape.to_string());
  return context.input(slot);
}

}  // namespace

GatherRows gather_of(PrepareContext& context) {
  const IndexInput index = index_input(context, "Index");
  Shape shape = rows_of(context, "X");
  GatherRows gather{.index = index,
                    .rows = shape[0],
                    .width = shape.numel(1, shape.rank()),
                    .from = context.input("X")};
  shape.set(0, index.count);
  gather.out = context.set_output("Out", shape, context.in("X").dtype);
  return gather;
}

GatherRows gather_back_of(PrepareContext& context) {
  const ValueSpec& x = context.in("X");
  const Shape& shape = rows_of(context, "X");
  GatherRows gather{.index = index_input(context, "Index"),
                    .rows = shape[0],
                    .width = shape.numel(1, shape.rank()),
                    .overwrite = context.attrs<GatherAttrs>().overwrite};
  gather.from = input_rows(context, "Out@GRAD", gather.index.count, gather.width);
  gather.out = context.set_output("X@GRAD", shape, x.dtype);
  return gather;
}

ScatterRows scatter_of(PrepareContext& context, DType dtype) {
  const Shape& shape = rows_of(context, "X");
  ScatterRows scatter{.index = index_input(context, "Ids"),
                      .rows = shape[0],
                      .width = shape.numel(1, shape.rank()),
                      .overwrite = context.attrs<ScatterAttrs>().overwrite,
                      .x = context.input("X")};
  scatter.updates = input_rows(context, "Updates", scatter.index.count, scatter.width);
  scatter.out = context.set_output("Out", shape, dtype);
  return scatter;
}

ScatterRowsBack scatter_back_of(PrepareContext& context, DType dtype) {
  const auto attrs = context.attrs<ScatterAttrs>();
  const Shape& shape = rows_of(context, "Out@GRAD");
  ScatterRowsBack scatter{.index = index_input(context, "Ids"),
                          .rows = shape[0],
                          .width = shape.numel(1, shape.rank()),
                          .keeps_named_rows = attrs.paddle_form,
                          .last_only = attrs.overwrite && !attrs.paddle_form,
                          .grad = context.input("Out@GRAD"),
                          .x_grad = context.set_output("X@GRAD", shape, dtype)};
  input_rows(context, "Updates", scatter.index.count, scatter.width);
  scatter.update_grad = context.set_output("Updates@GRAD", context.in("Updates").shape, dtype);
  return scatter;
}

}  // namespace fleet::fluid

#include "fluid/kernels/nn/norm_rows.h"

#include <algorithm>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/kernel.h"
#include "fluid/ops/nn/norm.h"

namespace fleet::fluid {
namespace {

NormRows layer_rows(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const int axis = context.attrs<LayerNormAttrs>().begin_norm_axis;
  context.require(axis >= 1 && axis < x.rank(), "X", "begin_norm_axis inside of the rank",
                  str_cat(axis, " of ", x));
  const int64_t columns = x.numel(axis, x.rank());
  return {.count = x.numel(0, axis), .length = columns, .image = columns, .width = columns};
}

NormRows group_rows(const PrepareContext& context) {
  const char* slot = context.has_input("X") ? "X" : "Y";
  const Shape& x = context.in(slot).shape;
  const auto attrs = context.attrs<GroupNormAttrs>();
  const std::string where = str_cat("op '", context.op().type, "', slot '", slot, "'");
  context.require(x.rank() >= 2, slot, "at least two dimensions", x.to_string());
  const int axis = channel_axis(attrs.data_layout, x.rank(), where);
  const int64_t all = x[axis];
  context.require(groups_fit(all, attrs.groups), slot, fitting_groups(attrs.groups), x.to_string());
  const bool last = axis == x.rank() - 1 && axis != 1;
  const int64_t channels = group_channels(all, attrs.groups);
  const int64_t inner = x.numel(1, x.rank()) / std::max<int64_t>(all, 1);
  NormRows rows{.count = x[0] * attrs.groups,
                .groups = attrs.groups,
                .image = inner * all,
                .width = all,
                .channels = channels,
                .missing = channels * attrs.groups - all,
                .channel_per_run = !last};
  rows.runs = last ? inner : channels;
  rows.length = last ? channels : inner;
  rows.run_stride = last ? all : inner;
  rows.group = last ? channels : channels * inner;
  return rows;
}

}  // namespace

void check_norm_vectors(const PrepareContext& context, const NormRows& rows, DType dtype) {
  for (const char* slot : {"Scale", "Bias"}) {
    if (!context.has_input(slot)) continue;
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == dtype && spec.shape.numel() == rows.width, slot,
                    str_cat(dtype_name(dtype), "[", rows.width, "]"),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
}

RowNorm layer_norm_of(const PrepareContext& context) {
  const NormRows rows = layer_rows(context);
  return {rows, Shape{rows.count}, context.attrs<LayerNormAttrs>().epsilon};
}

RowNorm group_norm_of(const PrepareContext& context) {
  const NormRows rows = group_rows(context);
  return {rows, Shape{rows.count / rows.groups, rows.groups},
          context.attrs<GroupNormAttrs>().epsilon};
}

}  // namespace fleet::fluid

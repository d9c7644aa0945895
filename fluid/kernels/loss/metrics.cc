#include "fluid/kernels/loss/metrics.h"

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/loss/metric.h"

namespace fleet::fluid {

TopK top_k_of(PrepareContext& context, DType dtype) {
  Shape shape = context.in("X").shape;
  const int64_t k = context.attrs<TopKAttrs>().k;
  const bool fits = shape.rank() >= 1 && k >= 1 && k <= shape[-1];
  context.require(fits, "X", str_cat("at least ", k, " columns"), shape.to_string());
  TopK top{
      .rows = shape.numel(0, shape.rank() - 1), .n = shape[-1], .k = k, .x = context.input("X")};
  shape.set(-1, k);
  top.indices = context.set_output("Indices", shape, DType::kInt64);
  top.out = context.set_output("Out", shape, dtype);
  return top;
}

TopK top_k_back_of(PrepareContext& context, DType dtype) {
  const Shape shape = context.in("X").shape;
  const ValueSpec& taken = context.in("Indices");
  const int64_t rows = shape.numel(0, shape.rank() - 1);
  const int64_t k = taken.shape[-1];
  context.require(taken.dtype == DType::kInt64 && taken.shape.numel() == rows * k, "Indices",
                  str_cat("int64, ", rows, " rows"), str_cat(dtype_name(taken.dtype), taken.shape));
  return {.rows = rows,
          .n = shape[-1],
          .k = k,
          .indices = context.input("Indices"),
          .grad = sized_input(context, "Out@GRAD", rows * k, dtype, "one an element of Indices"),
          .out = context.set_output("X@GRAD", shape, dtype)};
}

Accuracy accuracy_of(PrepareContext& context) {
  const Shape& shape = context.in("Indices").shape;
  const ValueSpec& labels = context.in("Label");
  const int64_t rows = shape[0];
  context.require(labels.dtype == DType::kInt64 && labels.shape.numel() == rows, "Label",
                  str_cat("int64 [", rows, ", 1]"),
                  str_cat(dtype_name(labels.dtype), labels.shape));
  return {.rows = rows,
          .k = shape.numel(1, shape.rank()),
          .indices = context.input("Indices"),
          .label = context.input("Label"),
          .share = context.set_output("Accuracy", Shape{1}, DType::kFloat32),
          .correct = context.set_output("Correct", Shape{1}, DType::kInt32),
          .total = context.set_output("Total", Shape{1}, DType::kInt32)};
}

// From the highest threshold on.
double roc_area(std::span<const int64_t> positives, std::span<const int64_t> negatives) {
  double area = 0;
  double p = 0;
  double n = 0;
  for (size_t i = positives.size(); i-- > 0;) {
    const double p_before = p;
    const double n_before = n;
    p += static_cast<double>(positives[i]);
    n += static_cast<double>(negatives[i]);
    area += (n - n_before) * (p + p_before) / 2;
  }
  return p > 0 && n > 0 ? area / p / n : 0;
}

}  // namespace fleet::fluid

#include "fluid/ops/metric.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

// Falling order; equal values in the order of their indices; not-a-number last.
template <class T>
std::unique_ptr<Prepared> prepare_top_k(PrepareContext& context) {
  if (context.has_input("K")) return nullptr;
  const Shape& x_shape = context.in("X").shape;
  const int64_t n = x_shape[-1];
  const int64_t k = context.attrs<TopKAttrs>().k;
  context.require(k >= 1 && k <= n, "X", str_cat("at least ", k, " columns"), str_cat(x_shape));
  Shape shape = x_shape;
  shape.set(-1, k);
  const int64_t rows = x_shape.numel(0, x_shape.rank() - 1);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int indices = context.set_output("Indices", shape, DType::kInt64);
  std::vector<int64_t> order(static_cast<size_t>(n));
  return make_prepared([=](const KernelContext& c) mutable {
    const T* xs = c.in<T>(x);
    for (int64_t i = 0; i < rows; ++i, xs += n) {
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [xs](int64_t a, int64_t b) {
        const bool a_nan = xs[a] != xs[a];
        const bool b_nan = xs[b] != xs[b];
        if (a_nan != b_nan) return b_nan;
        return a_nan || xs[a] == xs[b] ? a < b : xs[a] > xs[b];
      });
      for (int64_t j = 0; j < k; ++j) {
        const int64_t index = order[static_cast<size_t>(j)];
        if (out >= 0) c.out<T>(out)[i * k + j] = xs[index];
        if (indices >= 0) c.out<int64_t>(indices)[i * k + j] = index;
      }
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_top_k_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const Shape& taken = context.in("Indices").shape;
  const int64_t n = shape[-1];
  const int64_t k = taken[-1];
  const int64_t rows = shape.numel(0, shape.rank() - 1);
  context.require(taken.numel() == rows * k && context.in("Out@GRAD").shape.numel() == rows * k,
                  "Indices", str_cat(rows, " rows"), taken.to_string());
  const int indices = context.input("Indices");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(out);
    std::fill(outs, outs + rows * n, T{});
    for (int64_t i = 0; i < rows * k; ++i) {
      outs[i / k * n + c.in<int64_t>(indices)[i]] = c.in<T>(grad)[i];
    }
  });
}

// A row is right when its label is among the row's indices.
std::unique_ptr<Prepared> prepare_accuracy(PrepareContext& context) {
  const Shape& shape = context.in("Indices").shape;
  const int64_t rows = shape[0];
  const int64_t k = shape.numel(1, shape.rank());
  const ValueSpec& labels = context.in("Label");
  context.require(labels.dtype == DType::kInt64 && labels.shape.numel() == rows, "Label",
                  str_cat("int64 [", rows, ", 1]"),
                  str_cat(dtype_name(labels.dtype), labels.shape));
  const int indices = context.input("Indices");
  const int label = context.input("Label");
  const int accuracy = context.set_output("Accuracy", Shape{1}, DType::kFloat32);
  const int correct = context.set_output("Correct", Shape{1}, DType::kInt32);
  const int total = context.set_output("Total", Shape{1}, DType::kInt32);
  return make_prepared([=](const KernelContext& c) {
    const auto* found = c.in<int64_t>(indices);
    const auto* wanted = c.in<int64_t>(label);
    int32_t right = 0;
    for (int64_t i = 0; i < rows; ++i) {
      right += std::find(found + i * k, found + (i + 1) * k, wanted[i]) != found + (i + 1) * k;
    }
    const auto all = static_cast<float>(rows);
    if (accuracy >= 0) *c.out<float>(accuracy) = rows == 0 ? 0.0f : static_cast<float>(right) / all;
    if (correct >= 0) *c.out<int32_t>(correct) = right;
    if (total >= 0) *c.out<int32_t>(total) = static_cast<int32_t>(rows);
  });
}

}  // namespace

void register_metric(KernelTable& table) {
  table.add_last("accuracy", DeviceKind::kCpu, DType::kFloat32, {"loop", prepare_accuracy});
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("top_k_grad", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_top_k_grad<T>});
  });
  for_types<float, double, int32_t, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("top_k", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_top_k<T>});
  });
}

}  // namespace fleet::fluid::cpu

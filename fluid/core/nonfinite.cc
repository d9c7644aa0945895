#include "fluid/core/nonfinite.h"

#include <algorithm>
#include <cmath>

namespace fleet::fluid {
namespace {

bool is_checked(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

template <class T>
std::optional<double> first_of(const T* values, size_t n) {
  // A product with zero is zero or NaN, and NaN stays in the sum.
  T sum{};
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < n; ++i) sum += values[i] * T{};
  if (sum == T{}) return std::nullopt;
  return *std::find_if(values, values + n, [](T x) { return !std::isfinite(x); });
}

template <class T>
std::optional<double> first_of(const Tensor& tensor, std::span<const int64_t> rows) {
  const auto width = static_cast<size_t>(tensor.numel() / std::max<int64_t>(tensor.shape()[0], 1));
  for (const int64_t row : rows) {
    const auto found = first_of(tensor.data<T>() + static_cast<size_t>(row) * width, width);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> first_nonfinite(const Tensor& tensor) {
  if (!tensor.initialized() || !is_checked(tensor.dtype())) return std::nullopt;
  if (!tensor.place().is_cpu()) return first_nonfinite(tensor.copy_to(CPUPlace()));
  const auto n = static_cast<size_t>(tensor.numel());
  return tensor.dtype() == DType::kFloat32 ? first_of(tensor.data<float>(), n)
                                           : first_of(tensor.data<double>(), n);
}

std::optional<double> first_nonfinite(const Tensor& tensor, std::span<const int64_t> rows) {
  if (!tensor.initialized() || !is_checked(tensor.dtype())) return std::nullopt;
  return tensor.dtype() == DType::kFloat32 ? first_of<float>(tensor, rows)
                                           : first_of<double>(tensor, rows);
}

}  // namespace fleet::fluid

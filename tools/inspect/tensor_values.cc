#include "tools/inspect/tensor_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/numbers/half.h"

namespace fleet::inspect {
namespace {

using fluid::DType;
using fluid::Tensor;

constexpr size_t kChunk = 4096;

// Holds every int64 and double exactly.
using Number = long double;
using Chunk = std::array<Number, kChunk>;

template <class T>
void widen_as(const std::byte* from, size_t count, Chunk& out) {
  const auto* values = reinterpret_cast<const T*>(from);
  std::copy(values, values + count, out.begin());
}

void widen_halves(const std::byte* from, size_t count, bool brain, Chunk& out) {
  std::array<float, kChunk> floats;
  const auto* words = reinterpret_cast<const uint16_t*>(from);
  (brain ? float_of_bfloat16 : float_of_float16)(words, floats.data(), count);
  std::copy(floats.begin(), floats.begin() + static_cast<ptrdiff_t>(count), out.begin());
}

void widen(DType dtype, const std::byte* from, size_t count, Chunk& out) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return widen_as<uint8_t>(from, count, out);
    case DType::kInt8:
      return widen_as<int8_t>(from, count, out);
    case DType::kInt16:
      return widen_as<int16_t>(from, count, out);
    case DType::kInt32:
      return widen_as<int32_t>(from, count, out);
    case DType::kInt64:
      return widen_as<int64_t>(from, count, out);
    case DType::kFloat16:
    case DType::kBFloat16:
      return widen_halves(from, count, dtype == DType::kBFloat16, out);
    case DType::kFloat32:
      return widen_as<float>(from, count, out);
    case DType::kFloat64:
      return widen_as<double>(from, count, out);
  }
}

// Calls use(bytes of the first element, elements) for one piece after the other.
template <class Use>
void each_chunk(const Tensor& tensor, const Use& use) {
  const auto elements = static_cast<size_t>(tensor.numel());
  for (size_t begin = 0; begin < elements; begin += kChunk) {
    use(begin * dtype_size(tensor.dtype()), std::min(kChunk, elements - begin));
  }
}

Number absolute_difference(Number a, Number b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const Number distance = std::abs(a - b);
  return std::isnan(distance) ? std::numeric_limits<Number>::infinity() : distance;
}

}  // namespace

ValueSummary summarize(const Tensor& tensor) {
  ValueSummarizer values;
  values.add(tensor);
  return values.summary();
}

void ValueSummarizer::add(const Tensor& tensor) {
  Chunk chunk;
  each_chunk(tensor, [&](size_t byte, size_t count) {
    widen(tensor.dtype(), tensor.raw() + byte, count, chunk);
    for (const Number value : std::span(chunk).first(count)) {
      if (!std::isfinite(value)) {
        ++so_far_.nonfinite;
        continue;
      }
      const auto number = static_cast<double>(value);
      squares_ += value * value;
      so_far_.least = any_ ? std::min(so_far_.least, number) : number;
      so_far_.most = any_ ? std::max(so_far_.most, number) : number;
      any_ = true;
    }
  });
}

ValueSummary ValueSummarizer::summary() const {
  ValueSummary summary = so_far_;
  summary.norm = static_cast<double>(std::sqrt(squares_));
  return summary;
}

ValueDifference difference(const Tensor& a, const Tensor& b) {
  ValueDifference largest;
  Chunk first;
  Chunk second;
  const size_t size = dtype_size(a.dtype());
  each_chunk(a, [&](size_t byte, size_t count) {
    const std::byte* left = a.raw() + byte;
    const std::byte* right = b.raw() + byte;
    if (std::memcmp(left, right, count * size) == 0) return;
    widen(a.dtype(), left, count, first);
    widen(a.dtype(), right, count, second);
    for (size_t i = 0; i < count; ++i) {
      if (std::memcmp(left + i * size, right + i * size, size) == 0) continue;
      ++largest.elements;
      const Number distance = absolute_difference(first[i], second[i]);
      if (distance == 0) continue;
      const Number scale = std::max(std::abs(first[i]), std::abs(second[i]));
      const Number relative = std::isinf(distance) ? distance : distance / scale;
      largest.absolute = std::max(largest.absolute, static_cast<double>(distance));
      largest.relative = std::max(largest.relative, static_cast<double>(relative));
    }
  });
  return largest;
}

}  // namespace fleet::inspect

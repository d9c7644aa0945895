// Values of logical shards, what a rank contributes of them, and their sum as a local run computes
// it.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/numbers/half.h"
#include "base/philox.h"
#include "transport/collective/collective.h"

namespace fleet::transport::testing_reference {

// 16-bit types, which sum in float.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class T>
constexpr ElementType kType = ElementType::kFloat32;
template <>
inline constexpr ElementType kType<double> = ElementType::kFloat64;
template <>
inline constexpr ElementType kType<int64_t> = ElementType::kInt64;
template <>
inline constexpr ElementType kType<Float16> = ElementType::kFloat16;
template <>
inline constexpr ElementType kType<BFloat16> = ElementType::kBFloat16;

inline float widened(Float16 value) {
  float wide = 0;
  float_of_float16(&value.bits, &wide, 1);
  return wide;
}
inline float widened(BFloat16 value) {
  float wide = 0;
  float_of_bfloat16(&value.bits, &wide, 1);
  return wide;
}
template <class T>
T widened(T value) {
  return value;
}

template <class T>
T rounded(double value) {
  T result{};
  const auto narrow = static_cast<float>(value);
  if constexpr (std::is_same_v<T, Float16>) {
    float16_of_float(&narrow, &result.bits, 1);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    bfloat16_of_float(&narrow, &result.bits, 1);
  } else {
    result = static_cast<T>(value);
  }
  return result;
}

// What values of T are added up in.
template <class T>
using Wide = decltype(widened(T{}));

template <class T>
std::vector<T> shard_values(int shard, size_t count) {
  std::vector<T> values(count);
  const auto stream = static_cast<uint64_t>(shard);
  for (size_t i = 0; i < count; ++i) {
    values[i] = rounded<T>(100 * (uniform_double(RandomKey{1, 2}, i, stream) - 0.5));
  }
  return values;
}

template <class T>
std::vector<T> sum_of_arrays(const TreeSum& order, const std::vector<std::vector<T>>& arrays,
                             size_t count) {
  std::vector<std::vector<Wide<T>>> wide;
  std::vector<const Wide<T>*> pointers;
  for (const auto& array : arrays) {
    auto& values = wide.emplace_back(array.size());
    std::transform(array.begin(), array.end(), values.begin(),
                   [](T value) { return widened(value); });
  }
  pointers.reserve(wide.size());
  for (const auto& array : wide) pointers.push_back(array.data());
  std::vector<Wide<T>> sum(count);
  order(std::span<const Wide<T>* const>(pointers), sum.data(), count);
  std::vector<T> out(count);
  std::transform(sum.begin(), sum.end(), out.begin(),
                 [](Wide<T> value) { return rounded<T>(value); });
  return out;
}

template <class T>
std::vector<T> sum_of_shards(ShardRange range, size_t count) {
  std::vector<std::vector<T>> values;
  for (int s = range.begin; s < range.end; ++s) values.push_back(shard_values<T>(s, count));
  return sum_of_arrays(TreeSum(range.size()), values, count);
}

template <class T>
std::vector<std::vector<T>> contributions(const ShardLayout& layout, int rank, size_t count) {
  std::vector<std::vector<T>> parts;
  for (const ShardRange& node : layout.nodes(rank)) parts.push_back(sum_of_shards<T>(node, count));
  return parts;
}

// The sum of what all ranks contribute: of types that are not rounded between, the same for any
// number of ranks.
template <class T>
std::vector<T> sum_of_contributions(const ShardLayout& layout, size_t count) {
  std::vector<std::vector<T>> all;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    for (auto& part : contributions<T>(layout, rank, count)) all.push_back(std::move(part));
  }
  return sum_of_arrays(layout.sum(), all, count);
}

template <class T>
std::vector<T> local_sum(int shards, size_t count) {
  return sum_of_shards<T>({0, shards}, count);
}

template <class T>
std::vector<const void*> pointers(const std::vector<std::vector<T>>& parts) {
  std::vector<const void*> result;
  result.reserve(parts.size());
  for (const auto& part : parts) result.push_back(part.data());
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace fleet::transport::testing_reference

// Values of logical shards, what a rank contributes of them, and their sum as a local run computes
// it.
#pragma once

#include <cstring>
#include <vector>

#include "base/philox.h"
#include "transport/collective/collective.h"

namespace fleet::transport::testing_reference {

template <class T>
constexpr ElementType kType = ElementType::kFloat32;
template <>
inline constexpr ElementType kType<double> = ElementType::kFloat64;
template <>
inline constexpr ElementType kType<int64_t> = ElementType::kInt64;

template <class T>
std::vector<T> shard_values(int shard, size_t count) {
  std::vector<T> values(count);
  const auto stream = static_cast<uint64_t>(shard);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(100 * (uniform_double(RandomKey{1, 2}, i, stream) - 0.5));
  }
  return values;
}

template <class T>
std::vector<T> sum_of_shards(ShardRange range, size_t count) {
  std::vector<std::vector<T>> values;
  std::vector<const T*> arrays;
  for (int s = range.begin; s < range.end; ++s) values.push_back(shard_values<T>(s, count));
  for (const auto& array : values) arrays.push_back(array.data());
  std::vector<T> out(count);
  tree_sum(std::span<const T* const>(arrays), out.data(), count);
  return out;
}

template <class T>
std::vector<T> local_sum(int shards, size_t count) {
  return sum_of_shards<T>({0, shards}, count);
}

template <class T>
std::vector<std::vector<T>> contributions(const ShardLayout& layout, int rank, size_t count) {
  std::vector<std::vector<T>> parts;
  for (const ShardRange& node : layout.nodes(rank)) parts.push_back(sum_of_shards<T>(node, count));
  return parts;
}

template <class T>
std::vector<const void*> pointers(const std::vector<std::vector<T>>& parts) {
  std::vector<const void*> result;
  for (const auto& part : parts) result.push_back(part.data());
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace fleet::transport::testing_reference

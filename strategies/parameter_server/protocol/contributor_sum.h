// The sum of what contributors sent: by the fixed tree over shards, whoever is missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "strategies/parameter_server/protocol/contributors.h"

namespace fleet::strategies {

// Immutable; the table must outlive it.
class ContributorSum {
 public:
  explicit ContributorSum(const ContributorTable& table)
      : table_(table), full_(nodes_of(table), static_cast<int>(table.shards())) {}

  // out[i] = the sum of arrays[k][i] over the contributors `present`, which rise; a node of the
  // tree with one child is that child. `arrays` are those of all contributors, absent ones unread.
  // Nothing is written when nobody is there.
  template <class T>
  void operator()(std::span<const T* const> arrays, std::span<const uint32_t> present, T* out,
                  size_t n) const {
    if (present.size() == table_.size()) return full_(arrays, out, n);
    const std::vector<T> sum = sum_of({0, static_cast<int>(table_.shards())}, arrays, present, n);
    if (!sum.empty()) std::memcpy(out, sum.data(), n * sizeof(T));
  }

  // One after the other, as a mistake would have it.
  template <class T>
  static void in_order(std::span<const T* const> arrays, std::span<const uint32_t> order, T* out,
                       size_t n) {
    std::vector<T> sum(n, T{});
    for (const uint32_t i : order) {
      const T* both[] = {sum.data(), arrays[i]};
      tree_sum<T>(std::span<const T* const>(both), sum.data(), n);
    }
    std::memcpy(out, sum.data(), n * sizeof(T));
  }

 private:
  static std::vector<ShardRange> nodes_of(const ContributorTable& table) {
    std::vector<ShardRange> nodes;
    for (uint32_t i = 0; i < table.size(); ++i) nodes.push_back(table[i].node);
    return nodes;
  }

  template <class T>
  std::vector<T> sum_of(ShardRange range, std::span<const T* const> arrays,
                        std::span<const uint32_t> present, size_t n) const {
    const auto found = std::find_if(present.begin(), present.end(),
                                    [&](uint32_t i) { return table_[i].node == range; });
    if (found != present.end()) return {arrays[*found], arrays[*found] + n};
    if (range.size() < 2) return {};
    const int middle = range.begin + tree_split(range.size());
    std::vector<T> left = sum_of({range.begin, middle}, arrays, present, n);
    std::vector<T> right = sum_of({middle, range.end}, arrays, present, n);
    if (left.empty() || right.empty()) return left.empty() ? right : left;
    const T* both[] = {left.data(), right.data()};
    tree_sum<T>(std::span<const T* const>(both), left.data(), n);
    return left;
  }

  const ContributorTable& table_;
  TreeSum full_;
};

}  // namespace fleet::strategies

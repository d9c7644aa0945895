// The one order in which contributions of logical shards are added up, in every mode and in
// every process: a fixed binary tree over the shard indices. Floating-point sums depend on their
// order, so whoever adds (a local run, a worker, a parameter server, an all-reduce) follows this
// tree, and the number of processes and the order of arrival cannot change a bit.
//
// The tree over n leaves splits at the largest power of two smaller than n:
//   5 leaves: ((0+1)+(2+3))+4        6 leaves: ((0+1)+(2+3))+(4+5)
// Any thread may call everything here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fleet {

// The shards begin, begin + 1, …, end - 1.
struct ShardRange {
  int begin = 0;
  int end = 0;

  int size() const { return end - begin; }
  bool contains(const ShardRange& other) const { return begin <= other.begin && other.end <= end; }
  bool operator==(const ShardRange&) const = default;
};

// The contiguous range that process `index` of `processes` owns; the first shards % processes
// processes own one more. Every process owns at least one: shards >= processes >= 1.
ShardRange owned_shards(int index, int processes, int shards);

// Where a node of n >= 2 leaves splits: the largest power of two smaller than n.
int tree_split(int n);

// True when `range` is a node of the tree over `shards` leaves.
bool is_tree_node(ShardRange range, int shards);

// The largest nodes of the tree over `shards` leaves that lie inside `range`, in shard order.
// They are what the owner of a range can sum alone: at most 2 log2(shards) of them.
std::vector<ShardRange> maximal_nodes(ShardRange range, int shards);

// Adds values of nodes up to the value of `node`, the tree's own way: combine(left, right) for
// every pair. `parts` are nodes, in shard order, that make up `node` exactly, and values[i]
// belongs to parts[i]; each value is moved from once. Throws UsageError when the parts do not make
// up the node.
template <class Value, class Combine>
Value fold_nodes(ShardRange node, std::span<const ShardRange> parts, std::span<Value> values,
                 const Combine& combine);

// The compiled order of one sum: which arrays to add in which order. Immutable, so that threads
// may share it.
class TreeSum {
 public:
  // The sum over all leaves of a tree, `leaves` >= 1 arrays.
  explicit TreeSum(int leaves);
  // The sum over `parts`, nodes of the tree over `shards` leaves in shard order that make up a
  // node. Throws UsageError when they do not.
  TreeSum(std::span<const ShardRange> parts, int shards);

  int inputs() const { return inputs_; }

  // out[i] = the tree's sum of arrays[k][i], for i < n. `out` may be one of the arrays, but must
  // not overlap one in part. float, double and int64_t (which wraps).
  template <class T>
  void operator()(std::span<const T* const> arrays, T* out, size_t n) const;

 private:
  // One addition. Operands are input arrays (>= 0) or scratch slots (~slot).
  struct Add {
    int left;
    int right;
    int slot;  // where the result goes
  };
  int compile(ShardRange node, std::span<const ShardRange> parts, int slot);

  int inputs_ = 0;
  int slots_ = 1;
  std::vector<Add> adds_;
};

// out[i] = the sum of shards[k][i] over k, for i < n; `shards` are all leaves of the tree, in
// order. Aliasing and types as in TreeSum.
template <class T>
void tree_sum(std::span<const T* const> shards, T* out, size_t n);

extern template void TreeSum::operator()(std::span<const float* const>, float*, size_t) const;
extern template void TreeSum::operator()(std::span<const double* const>, double*, size_t) const;
extern template void TreeSum::operator()(std::span<const int64_t* const>, int64_t*, size_t) const;
extern template void tree_sum(std::span<const float* const>, float*, size_t);
extern template void tree_sum(std::span<const double* const>, double*, size_t);
extern template void tree_sum(std::span<const int64_t* const>, int64_t*, size_t);

namespace shard_tree_detail {

[[noreturn]] void fail_parts(ShardRange node, std::span<const ShardRange> parts);

template <class Value, class Combine>
Value fold(ShardRange node, std::span<const ShardRange> parts, std::span<Value> values,
           size_t& next, const Combine& combine) {
  if (next >= parts.size()) fail_parts(node, parts);
  if (parts[next] == node) return std::move(values[next++]);
  if (node.size() < 2) fail_parts(node, parts);
  const int middle = node.begin + tree_split(node.size());
  Value left = fold({node.begin, middle}, parts, values, next, combine);
  Value right = fold({middle, node.end}, parts, values, next, combine);
  return combine(std::move(left), std::move(right));
}

}  // namespace shard_tree_detail

template <class Value, class Combine>
Value fold_nodes(ShardRange node, std::span<const ShardRange> parts, std::span<Value> values,
                 const Combine& combine) {
  if (parts.size() != values.size()) shard_tree_detail::fail_parts(node, parts);
  size_t next = 0;
  Value sum = shard_tree_detail::fold(node, parts, values, next, combine);
  if (next != parts.size()) shard_tree_detail::fail_parts(node, parts);
  return sum;
}

}  // namespace fleet

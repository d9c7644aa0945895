// Sums of what contributors send, by the fixed tree over shards: two siblings are added up as soon
// as both are there, so that what waits is at most one value for every pair of contributors.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "strategies/parameter_server/protocol/contributors.h"

namespace fleet::strategies {

// The tree whose leaves are the contributors of a job. Immutable.
class SumTree {
 public:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Node {
    uint32_t parent = kNone;
    uint32_t left = kNone;  // kNone of a leaf
    uint32_t right = kNone;
  };

  explicit SumTree(const ContributorTable& table);
  // One of another form: node 0 is the root, `leaves` are the nodes of the contributors.
  SumTree(std::vector<Node> nodes, std::vector<uint32_t> leaves);

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t root() const { return root_; }
  uint32_t leaf(uint32_t contributor) const { return leaves_[contributor]; }
  const Node& operator[](uint32_t node) const { return nodes_[node]; }

 private:
  uint32_t build(ShardRange range, const ContributorTable& table);

  std::vector<Node> nodes_;
  std::vector<uint32_t> leaves_;
  uint32_t root_ = kNone;
};

// One sum that is being collected. `Value` is movable; one that is false counts as nothing.
// `join(left, right, last)` adds two values up; `last`: the result is the whole sum.
template <class Value>
class SiblingSums {
 public:
  // The tree must outlive it.
  explicit SiblingSums(const SumTree& tree) : tree_(&tree), values_(tree.size()) {}

  // Each contributor once.
  template <class Join>
  void add(uint32_t contributor, Value value, const Join& join) {
    uint32_t node = tree_->leaf(contributor);
    while (node != tree_->root()) {
      const SumTree::Node& parent = (*tree_)[(*tree_)[node].parent];
      const bool is_left = parent.left == node;
      Value& sibling = values_[is_left ? parent.right : parent.left];
      if (!sibling) break;
      --held_;
      Value other = std::exchange(sibling, Value());
      node = (*tree_)[node].parent;
      const bool last = node == tree_->root();
      value = is_left ? join(std::move(value), std::move(other), last)
                      : join(std::move(other), std::move(value), last);
    }
    if (!values_[node]) ++held_;
    values_[node] = std::move(value);
  }

  // Values that wait for their siblings.
  uint32_t held() const { return held_; }

  // The sum of what is there, whoever is missing: a node with one child is that child. Nothing
  // when nobody is there. Afterwards it is empty.
  template <class Join>
  Value finish(const Join& join) {
    return held_ == 0 ? Value() : take(tree_->root(), join);
  }

 private:
  template <class Join>
  Value take(uint32_t node, const Join& join) {
    if (values_[node]) {
      --held_;
      return std::exchange(values_[node], Value());
    }
    const SumTree::Node& children = (*tree_)[node];
    if (children.left == SumTree::kNone || held_ == 0) return Value();
    Value left = take(children.left, join);
    Value right = take(children.right, join);
    if (!left) return right;
    if (!right) return left;
    return join(std::move(left), std::move(right), node == tree_->root());
  }

  const SumTree* tree_;
  std::vector<Value> values_;  // by node
  uint32_t held_ = 0;
};

}  // namespace fleet::strategies

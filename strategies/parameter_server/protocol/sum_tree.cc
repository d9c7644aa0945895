#include "strategies/parameter_server/protocol/sum_tree.h"

#include <utility>

namespace fleet::strategies {

SumTree::SumTree(const ContributorTable& table) : leaves_(table.size()) {
  nodes_.reserve(2 * size_t{table.size()});
  root_ = build({0, static_cast<int>(table.shards())}, table);
}

SumTree::SumTree(std::vector<Node> nodes, std::vector<uint32_t> leaves)
    : nodes_(std::move(nodes)), leaves_(std::move(leaves)), root_(0) {}

uint32_t SumTree::build(ShardRange range, const ContributorTable& table) {
  const uint32_t node = size();
  nodes_.emplace_back();
  const int found =
      table.find(static_cast<uint64_t>(range.begin), static_cast<uint64_t>(range.end));
  if (found >= 0) {
    leaves_[static_cast<uint32_t>(found)] = node;
    return node;
  }
  const int middle = range.begin + tree_split(range.size());
  const uint32_t left = build({range.begin, middle}, table);
  const uint32_t right = build({middle, range.end}, table);
  nodes_[node].left = left;
  nodes_[node].right = right;
  nodes_[left].parent = nodes_[right].parent = node;
  return node;
}

}  // namespace fleet::strategies

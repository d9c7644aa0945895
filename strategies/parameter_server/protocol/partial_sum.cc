#include "strategies/parameter_server/protocol/partial_sum.h"

#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/protocol/pair_sum.h"

namespace fleet::strategies {

PartialSums::PartialSums(const std::vector<ShardRange>& nodes, int shards, fluid::DType dtype,
                         size_t bytes)
    : shards_(shards), dtype_(dtype), bytes_(bytes) {
  for (const ShardRange node : nodes) nodes_.push_back({node, {}, {}});
}

std::optional<PartialSums::Ready> PartialSums::add(int shard, const std::byte* gradient) {
  for (Node& node : nodes_) {
    if (shard < node.range.begin || shard >= node.range.end) continue;
    if (node.range.size() == 1) {
      if (nodes_.size() == 1) return Ready{node.range, gradient};
      // The same memory holds the next shard's gradient soon.
      if (node.levels.empty()) node.levels.emplace_back(bytes_);
      std::memcpy(node.levels.front().data(), gradient, bytes_);
      return Ready{node.range, node.levels.front().data()};
    }
    if (shard == node.range.begin) node.stack.clear();
    const int next = node.stack.empty() ? node.range.begin : node.stack.back().range.end;
    if (shard != next) break;
    Entry entry{{shard, shard + 1}, gradient};
    while (!node.stack.empty()) {
      const Entry& left = node.stack.back();
      const ShardRange both{left.range.begin, entry.range.end};
      const bool siblings =
          is_tree_node(both, shards_) && tree_split(both.size()) == left.range.size();
      if (!siblings) break;
      std::byte* out = node.levels[node.stack.size() - 1].data();
      sum_pair(dtype_, left.sum, entry.sum, out, bytes_);
      entry = {both, out};
      node.stack.pop_back();
    }
    if (entry.range == node.range) return Ready{node.range, entry.sum};
    const size_t level = node.stack.size();
    if (node.levels.size() <= level) node.levels.emplace_back(bytes_);
    if (entry.sum == gradient) {
      std::memcpy(node.levels[level].data(), gradient, bytes_);
      entry.sum = node.levels[level].data();
    }
    node.stack.push_back(entry);
    return std::nullopt;
  }
  throw_out_of_turn(shard);
}

}  // namespace fleet::strategies

// What a synchronous server does when the bits of its sums need not be the same in every run: one
// running sum, to which each gradient is added when it comes. Everything else is the server's.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "strategies/parameter_server/protocol/sync_server_rules.h"

namespace fleet::benchmarks {

class SumsByArrival final : public strategies::SyncServerRules {
 public:
  uint32_t place(uint32_t /*contributor*/, uint32_t arrived) const override { return arrived; }
  // Of n places, node i < n - 1 is the sum of the first n - i.
  strategies::SumTree tree(const strategies::ContributorTable& contributors) const override {
    const uint32_t sums = contributors.size() - 1;
    std::vector<strategies::SumTree::Node> nodes(sums + contributors.size());
    std::vector<uint32_t> leaves(contributors.size());
    std::iota(leaves.begin(), leaves.end(), sums);
    for (uint32_t node = 0; node < sums; ++node) {
      nodes[node].left = node + 1 < sums ? node + 1 : leaves[0];
      nodes[node].right = leaves[sums - node];
      nodes[nodes[node].left].parent = nodes[nodes[node].right].parent = node;
    }
    return {std::move(nodes), std::move(leaves)};
  }
};

}  // namespace fleet::benchmarks

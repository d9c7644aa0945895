// Who exchanges what in a recursive doubling along the shard tree. Internal to
// transport_collective.
//
// Let p be the largest power of two that is at most N. Rank p + j first gives what it has to rank
// j and in the end gets the result from it. The p ranks below exchange all they hold with the rank
// at distance 1, 2, 4 … p/2. A rank so knows the shards of a block of 2^k ranks and those of the
// same block among the ranks above p: two ranges, each of which is a single node of the tree when
// every rank has one shard. What it holds are the largest nodes inside those ranges; the value of
// a node is the same, whoever summed it, so the result has the bits of the tree.
#pragma once

#include <optional>
#include <vector>

#include "base/shard_tree.h"
#include "transport/collective/collective.h"
#include "transport/collective/sums_impl.h"

namespace fleet::transport::collective_detail {

struct ExchangePlan {
  struct Node {
    ShardRange range;
    Form form;  // as its only owner gave it, or a sum
  };
  // A node that is held after a step: one that was there, or a sum of several.
  struct Result {
    Node node;
    std::vector<size_t> inputs;  // among those held before, then those received
    std::optional<TreeSum> sum;  // where there are several
  };
  struct Step {
    int peer;
    bool sends;
    bool receives;
    bool upper = false;  // of the two, this rank has the higher number
    std::vector<Node> received;
    std::vector<Result> results;
  };

  std::vector<Node> given;  // what this rank holds at first
  std::vector<Step> steps;

  bool pairs(const Step& step) const { return step.sends && step.receives; }
};

ExchangePlan plan_exchange(const ShardLayout& layout, int rank);

}  // namespace fleet::transport::collective_detail

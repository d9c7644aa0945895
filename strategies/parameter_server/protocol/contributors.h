// Who contributes what to a step: every worker sends the sums of the largest subtrees that lie
// inside the shards that it owns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shard_tree.h"

namespace fleet::strategies {

struct Contributor {
  uint32_t worker = 0;
  ShardRange node;
};

// Immutable; in shard order, so that contributor i lies left of contributor i + 1 in the tree.
class ContributorTable {
 public:
  // Throws UsageError when there are fewer shards than workers.
  ContributorTable(uint32_t workers, uint32_t shards);

  uint32_t workers() const { return workers_; }
  uint32_t shards() const { return shards_; }
  uint32_t size() const { return static_cast<uint32_t>(all_.size()); }
  const Contributor& operator[](uint32_t i) const { return all_[i]; }
  // Contributors [first, last) belong to the worker.
  uint32_t first_of(uint32_t worker) const { return first_[worker]; }
  uint32_t last_of(uint32_t worker) const { return first_[worker + 1]; }
  // -1 when the node is not one that a worker sends.
  int find(uint64_t shard_begin, uint64_t shard_end) const;

 private:
  uint32_t workers_;
  uint32_t shards_;
  std::vector<Contributor> all_;
  std::vector<uint32_t> first_;
  std::vector<int> by_begin_;
};

}  // namespace fleet::strategies

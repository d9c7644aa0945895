// The sums of rows that a worker makes before it sends: as partial_sum.h, for gradients of selected
// rows.
#pragma once

#include <optional>
#include <vector>

#include "base/shard_tree.h"
#include "fluid/core/value.h"

namespace fleet::strategies {

// One slice's sums. Shards come in ascending order; when the last shard of a node comes, its sum
// is ready. One thread at a time.
class PartialRowSums {
 public:
  // `nodes` as maximal_nodes gives them.
  explicit PartialRowSums(std::vector<ShardRange> nodes) : nodes_(std::move(nodes)) {}

  struct Ready {
    ShardRange node;
    fluid::SelectedRows sum;  // rows strictly ascending
  };
  // Throws UsageError when the shard is out of turn, or no shard of this worker.
  std::optional<Ready> add(int shard, const fluid::SelectedRows& gradient);

 private:
  std::vector<ShardRange> nodes_;
  std::vector<fluid::SelectedRows> shards_;  // of the node that is coming
};

}  // namespace fleet::strategies

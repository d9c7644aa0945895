// The sums that a worker makes before it sends: gradients of its logical shards, added up to the
// nodes of the tree that it owns.
#pragma once

#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/shard_tree.h"
#include "fluid/core/dtype.h"

namespace fleet::strategies {

// One slice's sums. Shards come in ascending order; when the last shard of a node comes, its sum
// is ready. One thread at a time.
class PartialSums {
 public:
  // `nodes` as maximal_nodes gives them.
  PartialSums(const std::vector<ShardRange>& nodes, int shards, fluid::DType dtype, size_t bytes);

  struct Ready {
    ShardRange node;
    // The gradient's own memory for a worker of one shard; otherwise memory of this object, which
    // stays as it is until the first shard of the node comes again.
    const std::byte* sum = nullptr;
  };
  // Throws UsageError when the shard is out of turn, or no shard of this worker.
  std::optional<Ready> add(int shard, const std::byte* gradient);

 private:
  struct Entry {
    ShardRange range;
    const std::byte* sum;
  };
  struct Node {
    ShardRange range;
    std::vector<Buffer> levels;
    std::vector<Entry> stack;
  };

  std::vector<Node> nodes_;
  int shards_;
  fluid::DType dtype_;
  size_t bytes_;
};

}  // namespace fleet::strategies

#include "strategies/parameter_server/protocol/partial_row_sum.h"

#include "base/strings.h"
#include "fluid/kernels/shard_rows.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {

std::optional<PartialRowSums::Ready> PartialRowSums::add(int shard,
                                                         const fluid::SelectedRows& gradient) {
  for (const ShardRange node : nodes_) {
    if (shard < node.begin || shard >= node.end) continue;
    if (shard == node.begin) shards_.clear();
    if (shard - node.begin != static_cast<int>(shards_.size())) break;
    shards_.push_back(
        {.rows = gradient.rows, .height = gradient.height, .value = gradient.value.clone()});
    if (shard + 1 < node.end) return std::nullopt;
    return Ready{node, fluid::sum_of_rows(shards_)};
  }
  throw_out_of_turn(shard);
}

}  // namespace fleet::strategies

#include "strategies/parameter_server/protocol/contributors.h"

namespace fleet::strategies {

ContributorTable::ContributorTable(uint32_t workers, uint32_t shards)
    : workers_(workers), shards_(shards), by_begin_(shards, -1) {
  for (uint32_t worker = 0; worker < workers; ++worker) {
    first_.push_back(size());
    const ShardRange owned =
        owned_shards(static_cast<int>(worker), static_cast<int>(workers), static_cast<int>(shards));
    for (const ShardRange node : maximal_nodes(owned, static_cast<int>(shards))) {
      by_begin_[static_cast<size_t>(node.begin)] = static_cast<int>(size());
      all_.push_back({worker, node});
    }
  }
  first_.push_back(size());
}

int ContributorTable::find(uint64_t shard_begin, uint64_t shard_end) const {
  if (shard_begin >= by_begin_.size()) return -1;
  const int found = by_begin_[shard_begin];
  if (found < 0) return -1;
  return static_cast<uint64_t>(all_[static_cast<size_t>(found)].node.end) == shard_end ? found : -1;
}

}  // namespace fleet::strategies

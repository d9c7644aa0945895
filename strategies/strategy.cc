#include "strategies/strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "strategies/strategies.h"

namespace fleet::strategies {

int resolve_logical_shards(int asked, const role_maker::ClusterSpec& cluster) {
  if (asked == 0) return cluster.worker_num;
  if (asked < cluster.worker_num) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a step needs at least one logical shard for each worker",
                 .where = "logical_shards",
                 .expected = str_cat("0, or at least ", cluster.worker_num, " (worker_num)"),
                 .got = str_cat(asked),
                 .fix = "raise logical_shards or start fewer workers"});
  }
  return asked;
}

DistributedStrategy default_strategy(const role_maker::ClusterSpec& cluster, int logical_shards) {
  switch (cluster.mode) {
    case role_maker::Mode::kParameterServer:
      return SyncStrategy{.logical_shards = logical_shards};
    case role_maker::Mode::kCollective:
      return GradAllReduceStrategy{.logical_shards = logical_shards};
    case role_maker::Mode::kLocal:
      break;
  }
  return LocalStrategy{.logical_shards = logical_shards};
}

}  // namespace fleet::strategies

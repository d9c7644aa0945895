#include "strategies/strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "strategies/strategies.h"

namespace fleet::strategies {

void check_gradient_merge(const char* strategy, int gradient_merge, int logical_shards) {
  if (gradient_merge < 1) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "a step has at least one part",
                                              .where = str_cat(strategy, ".gradient_merge"),
                                              .expected = "1 or more",
                                              .got = str_cat(gradient_merge),
                                              .fix = "leave it at its default of 1"});
  }
  if (gradient_merge == 1 || logical_shards == 0) return;
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "gradient_merge and logical_shards contradict each other",
       .where = strategy,
       .expected = "at most one of them",
       .got = str_cat("gradient_merge = ", gradient_merge, ", logical_shards = ", logical_shards),
       .fix = "logical_shards = workers * gradient_merge says the same"});
}

int resolve_logical_shards(int asked, const role_maker::ClusterSpec& cluster, int gradient_merge) {
  if (asked == 0) return gradient_merge * cluster.worker_num;
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

// Every strategy of the library.
#pragma once

#include "strategies/async_strategy.h"
#include "strategies/collective_strategy.h"
#include "strategies/forwarding.h"
#include "strategies/grad_all_reduce_strategy.h"
#include "strategies/jobs/attach.h"
#include "strategies/local_sgd_strategy.h"
#include "strategies/local_strategy.h"
#include "strategies/strategy.h"
#include "strategies/strategy_factory.h"
#include "strategies/sync_strategy.h"

namespace fleet::strategies {

// What a job of this mode uses when nothing is asked for: parameter servers SyncStrategy, workers
// alone GradAllReduceStrategy, a single process LocalStrategy.
DistributedStrategy default_strategy(const role_maker::ClusterSpec& cluster, int logical_shards);

}  // namespace fleet::strategies

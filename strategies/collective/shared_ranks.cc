#include "strategies/collective/shared_ranks.h"

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "transport/collective/communicator.h"
#include "transport/shared_collective/arena_exchange.h"
#include "transport/shared_collective/shared_peers.h"

namespace fleet::strategies {
namespace {

// All ranks come at once, from a meeting.
constexpr Duration kJoin = std::chrono::seconds(5);

// For gradients of a rank: addresses, of which those that are used take memory.
constexpr uint64_t kHeapBytes = uint64_t{64} << 30;

using Arenas = std::vector<std::shared_ptr<const transport::Arena>>;

}  // namespace

Result<std::unique_ptr<transport::CollectiveCommunicator>> connect_shared(
    CollectiveMembership& membership, const role_maker::ClusterSpec& cluster, bool may_share) {
  const int ranks = cluster.worker_num;
  const int rank = cluster.index;
  transport::ArenaExchange exchange;
  auto own = transport::Arena::make({ranks, kHeapBytes});
  Status possible = own.status();
  if (possible.ok()) possible = exchange.listen(ranks);
  const bool offers = may_share && possible.ok();
  const auto invitations =
      membership.gather("shared memory", offers ? exchange.invitation() : std::string());
  Result<Arenas> joined = possible;
  if (possible.ok()) {
    joined = exchange.join(rank, own.value(), invitations, steady_clock().now() + kJoin);
  }
  const auto failures = membership.gather("use of shared memory",
                                          joined.ok() ? "" : joined.status().text().to_string());
  for (size_t other = 0; other < failures.size(); ++other) {
    if (failures[other].empty()) continue;
    if (!possible.ok()) return possible;  // says more than the others know
    return Status(ErrorCode::kNotSupported, {.what = "ranks do not share memory",
                                             .where = str_cat("rank ", other),
                                             .expected = {},
                                             .got = failures[other],
                                             .fix = {}});
  }
  return transport::make_communicator(std::make_unique<transport::SharedPeers>(
      rank, std::move(own.value()), std::move(joined.value())));
}

}  // namespace fleet::strategies

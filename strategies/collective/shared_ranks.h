// Ranks of one machine and one user, which exchange tensors through shared memory; all ranks agree
// on whether they do.
#pragma once

#include <memory>

#include "base/status.h"
#include "role_maker/cluster_spec.h"
#include "strategies/collective/collective_membership.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

// All ranks call it, when they have joined; those that may not share memory say so. An error, at
// every rank, when one of them cannot: it names the rank and why. Throws PeerError when the job
// ends meanwhile.
Result<std::unique_ptr<transport::CollectiveCommunicator>> connect_shared(
    CollectiveMembership& membership, const role_maker::ClusterSpec& cluster, bool may_share);

}  // namespace fleet::strategies

// Collectives over MPI for tensors in host memory: the algorithms of
// transport/collective/communicator.h over MPI's non-blocking point-to-point messages, which are
// tested against a deadline, so that a rank that does not come is found and named.
//
// A waiting rank spins for a moment, then gives its core away; it gives it away at once when ranks
// outnumber cores. MPI is called with the session's lock held.
#pragma once

#include <memory>

#include "transport/collective/communicator.h"
#include "transport/mpi_session/mpi_session.h"

namespace fleet::transport {

// The communicator of all ranks of the session, which must outlive it. All ranks call this; it
// waits at most `timeout` for them.
Result<std::unique_ptr<CollectiveCommunicator>> make_mpi_communicator(
    MpiSession& session, Duration timeout, CommunicatorOptions options = {});

}  // namespace fleet::transport

// Collectives over MPI for tensors in host memory, with the ordered all-reduce: sums follow the
// shard tree, so their bits do not depend on timing or on the number of ranks.
//
// Everything is built of MPI's non-blocking point-to-point messages, tested against a deadline, so
// that a rank that does not come is found and named. A waiting rank spins for a moment, then gives
// its core away; it gives it away at once when ranks outnumber cores.
//
// All-reduce takes one of two ways. Small tensors: every rank sends its contribution to every
// other and sums for itself: one message delay. Large ones: pieces of 256 KiB at most, each summed
// by the rank that owns it and then sent to all, several pieces under way: the bytes of a ring.
#pragma once

#include <memory>

#include "transport/collective/collective.h"
#include "transport/mpi_session/mpi_session.h"

namespace fleet::transport {

struct MpiCommunicatorOptions {
  // Up to this many bytes from all ranks together, an all-reduce takes the way for small tensors.
  size_t direct_limit_bytes = 256 * 1024;
  // Where the pieces of large tensors end.
  size_t piece_bytes = 256 * 1024;
  // Rounds of pieces (one for each rank) that are under way together.
  int window = 4;
};

// The communicator of all ranks of the session, which must outlive it. All ranks call this; it
// waits at most `timeout` for them.
Result<std::unique_ptr<CollectiveCommunicator>> make_mpi_communicator(
    MpiSession& session, Duration timeout, MpiCommunicatorOptions options = {});

}  // namespace fleet::transport

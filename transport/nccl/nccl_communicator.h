// Collective operations over NCCL, on tensors in the memory of devices: pointers that it is given
// are the device's, and an operation is done when the device has done it.
//
// all_reduce and reduce_scatter have two forms:
//   ordered   each rank adds up its part of the array along the shard tree, from the parts that the
//             others send it, and all_reduce then tells its sums to all. The same bits at any
//             number of ranks, and as a local run.
//   fast      ncclAllReduce, ncclReduceScatter: an order of NCCL's, which changes with the ranks,
//             the machine and the version. A reduce_scatter into unequal parts is ordered.
//
// With N ranks of one shard each and an array of M bytes, a rank sends 2 (N - 1) / N M bytes in the
// ordered all_reduce, as in a ring, and (N - 1) / N M in the ordered reduce_scatter. A rank with k
// nodes of the shard tree sends k arrays in the first half, not their sum, since the tree may add
// nodes of several ranks first. Beside the arrays it needs all parts of one piece: `piece_bytes`
// for each node of the tree.
#pragma once

#include <chrono>
#include <memory>

#include "transport/nccl/device_queue.h"
#include "transport/nccl/nccl.h"

namespace fleet::transport {

struct NcclOptions {
  // The form of sums.
  bool ordered = true;
  // Of what a rank adds up at a time.
  size_t piece_bytes = 4 << 20;
  // How much later than this rank another may come to an operation: the first ones between two
  // ranks connect them, which starting such an operation waits for.
  Duration late_limit = std::chrono::seconds(180);
};

// Of all ranks of the id, one a process, all of which call it; waits for them until `deadline`.
// Used by one thread, except for abort(). `queue` is its own. kPeerLost when ranks do not come; the
// library's error, with its words, when it has one.
Result<std::unique_ptr<CollectiveCommunicator>> make_nccl_communicator(
    std::shared_ptr<Nccl> nccl, std::unique_ptr<DeviceQueue> queue, const NcclId& id, int rank,
    int ranks, TimePoint deadline, NcclOptions options = {});

}  // namespace fleet::transport

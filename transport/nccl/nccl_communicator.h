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
// Several rings of the library's communicators, each with a stream, take turns from operation to
// operation, so that two of them may be on their way at the same time.
//
// Ranks in groups (of a machine, say) add up an all_reduce in three steps: the ranks of each group
// among themselves, the first ranks of the groups with each other, and then these tell their group.
// In the ordered form that needs groups whose shards are a node of the shard tree, and types of 32
// bits and more; all other sums are added up by all ranks at once, with the same bits.
//
// With N ranks of one shard each and an array of M bytes, a rank sends 2 (N - 1) / N M bytes in the
// ordered all_reduce, as in a ring, and (N - 1) / N M in the ordered reduce_scatter. A rank with k
// nodes of the shard tree sends k arrays in the first half, not their sum, since the tree may add
// nodes of several ranks first. Beside the arrays it needs all parts of one piece: `piece_bytes`
// for each node of the tree.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

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
  // A failure leaves the library's communicators for shrinking, where the library can do that:
  // what is under way is revoked, and they are aborted with this communicator. Without it they are
  // aborted at once.
  bool keeps_ranks = false;
  // How long what is under way may take to end after a failure. Revoked communicators are aborted
  // then; a device that stands still is left to the end of the process.
  Duration end_limit = std::chrono::seconds(5);
};

// Who takes part.
struct NcclRanks {
  int rank = 0;
  int size = 1;
  // The sizes of groups of consecutive ranks, which add up to `size`; none: no groups.
  std::vector<int> groups = {};

  // The group of this rank, and where it begins.
  struct Place {
    int group = 0;
    int first = 0;
  };
  Place place() const;
};

// What one ring is made of.
struct NcclRing {
  std::unique_ptr<DeviceQueue> queue;
  NcclId id{};  // of all ranks; not used by a ring that is shrunk
  // Where there are groups.
  NcclId inner{};  // of this rank's group
  NcclId outer{};  // of the first ranks of all groups
};

// The communicator that ranks had before some were lost.
struct NcclLoss {
  CollectiveCommunicator* failed = nullptr;  // made below, with keeps_ranks
  std::vector<int> lost = {};                // by their ranks there
};

// Of all ranks of the ids, one a process, all of which call it; waits for them until `deadline`.
// Rings are at least one, and as many at each rank. Used by one thread, except for abort(). The
// queues are its own; `arrays` is that of what callers do with arrays, which so does not wait for
// operations under way. With a loss, the library's communicators of all ranks are made from those
// of the failed one; the ranks left keep their order. kPeerLost when ranks do not come; the
// library's error, with its words, when it has one.
Result<std::unique_ptr<CollectiveCommunicator>> make_nccl_communicator(
    std::shared_ptr<Nccl> nccl, std::unique_ptr<DeviceQueue> arrays, std::vector<NcclRing> rings,
    const NcclRanks& ranks, TimePoint deadline, NcclOptions options = {},
    const NcclLoss& loss = {});

// Whether one of the ranks left can be made from it: it was made above and has failed, and its
// library's communicators, as many as `rings`, are there.
bool has_nccl_ranks(const CollectiveCommunicator& failed, size_t rings);

// Whether an all_reduce of this layout is added up group by group in the ordered form.
bool groups_are_nodes(const ShardLayout& layout, const std::vector<int>& groups);

}  // namespace fleet::transport

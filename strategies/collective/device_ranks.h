// Ranks whose tensors are on devices: how they find out whether NCCL can sum them, connect, and go
// on without those that were lost.
//
// Every rank says to all, over the communicator that they have, what it has: NCCL and its version,
// or why not. Where each has the same, some of them make ids, tell them to all, and they start NCCL
// with them. Otherwise sums go over host memory, and a line of the log says why.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "fluid/core/place.h"
#include "transport/collective/collective.h"
#include "transport/nccl/device_queue.h"
#include "transport/nccl/nccl.h"
#include "transport/nccl/nccl_communicator.h"

namespace fleet::strategies {

// What one rank needs for sums on its device.
struct DeviceLibrary {
  std::shared_ptr<transport::Nccl> nccl;
  // A stream of the device, a new one with each call; may throw Error.
  std::function<std::unique_ptr<transport::DeviceQueue>()> make_queue;
};

// NCCL as it is installed, and streams of the device; kNotSupported, with what to do, where there
// is no library.
Result<DeviceLibrary> open_device_library(const fluid::Place& place);

// The same at all ranks, but for `open` and `machine`.
struct DeviceRanksOptions {
  std::function<Result<DeviceLibrary>(const fluid::Place&)> open = open_device_library;
  transport::NcclOptions nccl = {};
  // Communicators of NCCL that take turns.
  int communicators = 1;
  // Ranks are summed in groups first: of `group_ranks` ranks, up to 1: those of a machine, which
  // need to follow one another. In one group, or groups of one rank, there is nothing to sum first;
  // what else stands against it is told to the log, and all ranks sum at once.
  bool hierarchical = false;
  int group_ranks = 0;
  // Of a step; 0: one for each rank. Groups whose shards are no node of the shard tree cannot be
  // summed first in the ordered form.
  int logical_shards = 0;
  // For NCCL's own TCP sockets, the same at all ranks; empty: they are not encrypted. With a key,
  // a rank whose library takes none has no library.
  std::string encryption_key = {};
  // What ranks of one machine have in common.
  std::string machine = {};
  Duration timeout = std::chrono::seconds(180);
};

// All ranks call it. Null where sums go over host memory. Throws PeerError when a rank does not
// come, and what NCCL says when it cannot start.
std::unique_ptr<transport::CollectiveCommunicator> connect_devices(
    transport::CollectiveCommunicator& host, const fluid::Place& place,
    const DeviceRanksOptions& options, const Logger& logger);

// The ranks that go on after a loss.
struct RanksLeft {
  // What connect_devices() or rebuild_devices() made; it is aborted, if that has not been done. It
  // stays as it is, failed, and may go afterwards.
  transport::CollectiveCommunicator* failed = nullptr;
  // By new rank, the rank there; in order.
  std::vector<int> old_ranks = {};
};

// As connect_devices(), after a rank was lost: called by all ranks that are left, `host` is their
// communicator. Where NCCL of each can shrink what they had (2.28 and newer, with
// options.nccl.keeps_ranks), it does; else, and where that fails, they start anew with new ids.
// Throws kInvalidArgument when the ranks left do not fit `host`.
std::unique_ptr<transport::CollectiveCommunicator> rebuild_devices(
    transport::CollectiveCommunicator& host, const fluid::Place& place, const RanksLeft& left,
    const DeviceRanksOptions& options, const Logger& logger);

}  // namespace fleet::strategies

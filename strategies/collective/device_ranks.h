// Ranks whose tensors are on devices: how they find out whether NCCL can sum them, and connect.
//
// Every rank says to all, over the communicator that they have, what it has: NCCL and its version,
// or why not. Where each has the same, rank 0 makes an id, tells it to all, and they start NCCL
// with it. Otherwise sums go over host memory, and a line of the log says why.
#pragma once

#include <functional>
#include <memory>

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
  std::unique_ptr<transport::DeviceQueue> queue;
};

// NCCL as it is installed, and a stream of the device; kNotSupported, with what to do, where there
// is none.
Result<DeviceLibrary> open_device_library(const fluid::Place& place);

struct DeviceRanksOptions {
  std::function<Result<DeviceLibrary>(const fluid::Place&)> open = open_device_library;
  transport::NcclOptions nccl = {};
  Duration timeout = std::chrono::seconds(180);
};

// All ranks call it. Null where sums go over host memory. Throws PeerError when a rank does not
// come, and what NCCL says when it cannot start.
std::unique_ptr<transport::CollectiveCommunicator> connect_devices(
    transport::CollectiveCommunicator& host, const fluid::Place& place,
    const DeviceRanksOptions& options, const Logger& logger);

}  // namespace fleet::strategies

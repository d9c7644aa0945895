// A synchronous job of one server and many workers over real sockets, on this machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/link/link.h"

namespace fleet::benchmarks {

struct SocketJob {
  uint32_t workers = 10;
  uint32_t processes = 4;  // that the workers are spread over; the server has one of its own
  uint32_t slices = 16;
  size_t elements = 1024;  // float32, of each slice
  uint64_t steps = 10;     // that are measured, behind a warm-up
  transport::TransportChoice transport = transport::TransportChoice::kTcp;  // on loopback
  // The server adds each gradient to the sum when it comes, not in the order of the shards.
  bool sums_by_arrival = false;
};

struct SocketJobTimes {
  // Processor time of the server's process for one worker's gradient of one slice: received,
  // authenticated (over TCP), summed, and the new value sent back.
  double server_ns = 0;
  double step_us = 0;  // of the clock on the wall
};

// Workers of a process share one loop, compute nothing, and begin a step where the last one ends.
// Forks, so the caller has no other thread. Throws when a process fails.
SocketJobTimes run_socket_job(const SocketJob& job);

}  // namespace fleet::benchmarks

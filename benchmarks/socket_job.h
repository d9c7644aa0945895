// A synchronous job of one server and many workers over real sockets, on this machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fleet::benchmarks {

struct SocketJob {
  uint32_t workers = 10;
  uint32_t processes = 4;  // that the workers are spread over; the server has one of its own
  uint32_t slices = 16;
  size_t elements = 1024;  // float32, of each slice
  uint64_t steps = 10;     // that are measured, behind a warm-up
};

// Processor time of the server's process for one worker's gradient of one slice, over TCP on
// loopback: received, authenticated, summed, and the new value sent back. Workers of a process
// share one loop. Forks, so the caller has no other thread. Throws when a process fails.
double server_ns_per_gradient(const SocketJob& job);

}  // namespace fleet::benchmarks

// What a job sends, counted by the kernel.
#pragma once

#include <functional>

namespace fleet::benchmarks {

// Whether this process may make network namespaces: root may.
bool can_count_bytes();

// Bytes that went over the network while `job` ran: it, and the processes that it starts, have a
// loopback of their own and no other network, and its counter is read before and after. Headers of
// TCP and IP count; Unix sockets and shared memory do not. Throws what `job` throws.
double bytes_sent_by(const std::function<void()>& job);

}  // namespace fleet::benchmarks

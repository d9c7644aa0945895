// Ranks of an InProcessGroup, each in a thread of its own.
#pragma once

#include <thread>
#include <vector>

#include "transport/collective/in_process_communicator.h"

namespace fleet::transport::testing_reference {

// Runs `body(communicator)` at every rank. A communicator lives until all have ended.
template <class Body>
void run_ranks(int ranks, const Body& body) {
  InProcessGroup group(ranks);
  std::vector<std::shared_ptr<CollectiveCommunicator>> members(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads(members.size());
  for (int rank = 0; rank < ranks; ++rank) {
    members[static_cast<size_t>(rank)] = group.member(rank);
  }
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::jthread([&body, &member = *members[i]] { body(member); });
  }
}

}  // namespace fleet::transport::testing_reference

// Ranks for tests that share memory: threads of this process, each with mappings of its own, or
// processes.
#pragma once

#include <barrier>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/caught.h"
#include "transport/collective/communicator.h"
#include "transport/shared_collective/arena_exchange.h"
#include "transport/shared_collective/shared_peers.h"

namespace fleet::transport::testing {

constexpr CollectiveLabel kLabel{.phase = "test", .step = 7};

inline TimePoint soon(Duration limit = std::chrono::seconds(60)) {
  return steady_clock().now() + limit;
}

// Arenas of a group, all mapped by this process: [rank][of which rank].
using Mappings = std::vector<std::vector<std::shared_ptr<const Arena>>>;

struct SharedGroup {
  std::vector<std::shared_ptr<Arena>> own;
  Mappings mapped;

  explicit SharedGroup(int size, uint64_t heap_bytes = 0) {
    const ArenaLayout layout{size, heap_bytes};
    std::vector<ArenaExchange> exchanges(static_cast<size_t>(size));
    std::vector<std::string> invitations;
    invitations.reserve(exchanges.size());
    for (ArenaExchange& exchange : exchanges) {
      exchange.listen(size).throw_if_error();
      invitations.push_back(exchange.invitation());
      own.push_back(Arena::make(layout).value());
    }
    mapped.resize(exchanges.size());
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < exchanges.size(); ++rank) {
      threads.emplace_back([&, rank] {
        auto joined = exchanges[rank].join(static_cast<int>(rank), own[rank], invitations, soon());
        if (joined.ok()) mapped[rank] = std::move(joined.value());
        EXPECT_TRUE(joined.ok()) << joined.status().to_string();
      });
    }
  }

  std::unique_ptr<SharedPeers> peers(int rank) {
    const auto r = static_cast<size_t>(rank);
    return std::make_unique<SharedPeers>(rank, own[r], mapped[r]);
  }
};

// Runs `body(communicator)` at every rank, in threads. A communicator lives until all have ended.
template <class Body>
void run_shared_ranks(int size, const Body& body, CommunicatorOptions options = {},
                      uint64_t heap_bytes = 0) {
  SharedGroup group(size, heap_bytes);
  std::vector<std::unique_ptr<CollectiveCommunicator>> members;
  members.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    members.push_back(make_communicator(group.peers(rank), options));
  }
  std::vector<std::jthread> threads;
  threads.reserve(members.size());
  for (const auto& member : members) {
    threads.emplace_back([&body, &member] {
      try {
        body(*member);
      } catch (...) {
        ADD_FAILURE() << caught_status("rank").to_string();
      }
    });
  }
}

}  // namespace fleet::transport::testing

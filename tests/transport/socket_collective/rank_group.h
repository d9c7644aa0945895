// Ranks for tests: what they send each other, and threads of this process that are ranks.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/caught.h"
#include "tests/testing/ports.h"
#include "tests/transport/support.h"
#include "transport/link/asio_network.h"
#include "transport/socket_collective/socket_peers.h"

namespace fleet::transport::testing {

inline SocketPeersOptions options_of_rank(int rank, int size) {
  SocketPeersOptions options;
  options.hello =
      hello_of(PeerRole::kWorker, static_cast<uint32_t>(rank), static_cast<uint32_t>(size), 0);
  options.secret = secret();
  options.rpc_deadline = 30s;
  return options;
}

inline OperationId gather(uint64_t sequence, uint64_t bytes) {
  return {sequence, CollectiveKind::kAllGather, ElementType::kFloat32, bytes};
}

// What rank `from` sends to all in an operation. Made a word at a time: tests under a sanitizer
// make hundreds of megabytes.
inline std::vector<std::byte> said(int from, uint64_t sequence, size_t bytes) {
  std::vector<std::byte> made(bytes);
  uint64_t word = sequence * 1000 + static_cast<uint64_t>(from);
  for (size_t at = 0; at < bytes; at += sizeof word) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    std::memcpy(made.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return made;
}

// An operation in which every rank sends the same bytes to every other.
class Exchange {
 public:
  Exchange(SocketPeers& peers, uint64_t sequence, size_t bytes)
      : rank_(peers.rank()),
        sequence_(sequence),
        mine_(said(peers.rank(), sequence, bytes)),
        theirs_(static_cast<size_t>(peers.size()), std::vector<std::byte>(bytes)),
        messages_(peers.messages(gather(sequence, bytes))) {
    for (int step = 1; step < peers.size(); ++step) {
      const int from = (rank_ + peers.size() - step) % peers.size();
      messages_->receive(from, theirs_[static_cast<size_t>(from)]);
    }
    for (int step = 1; step < peers.size(); ++step) {
      messages_->send((rank_ + step) % peers.size(), mine_);
    }
  }

  MessageSet& messages() { return *messages_; }
  bool is_right() const {
    for (size_t from = 0; from < theirs_.size(); ++from) {
      if (static_cast<int>(from) == rank_) continue;
      const auto wanted = said(static_cast<int>(from), sequence_, mine_.size());
      if (!wanted.empty() && std::memcmp(theirs_[from].data(), wanted.data(), wanted.size()) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  int rank_;
  uint64_t sequence_;
  std::vector<std::byte> mine_;
  std::vector<std::vector<std::byte>> theirs_;
  std::unique_ptr<MessageSet> messages_;
};

// False when the limit came first.
inline bool wait(SocketPeers& peers, MessageSet& messages, Duration limit = 60s) {
  const TimePoint deadline = steady_clock().now() + limit;
  TimePoint moved = steady_clock().now();
  uint64_t progress = peers.progress();
  for (;;) {
    peers.poll();
    if (messages.test()) return true;
    const TimePoint now = steady_clock().now();
    if (now >= deadline) return false;
    if (progress != peers.progress()) moved = now;
    progress = peers.progress();
    peers.rest(now - moved, deadline);
  }
}

inline void expect_exchange(SocketPeers& peers, uint64_t sequence, size_t bytes) {
  Exchange exchange(peers, sequence, bytes);
  ASSERT_TRUE(wait(peers, exchange.messages())) << "rank " << peers.rank();
  EXPECT_TRUE(exchange.is_right()) << "rank " << peers.rank() << ", operation " << sequence;
}

// What a rank's thread may be given instead of what all have.
struct ThreadRank {
  SocketPeersOptions options;
  Network* network = nullptr;
  // Where this rank finds the others.
  std::function<std::vector<Endpoint>(std::vector<Endpoint>)> endpoints;
};

class RankThreads {
 public:
  explicit RankThreads(int size, TransportChoice choice = TransportChoice::kAuto)
      : network_(choice), bound_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back({options_of_rank(rank, size), &network_, {}});
      // Only TCP finds a free port.
      if (choice == TransportChoice::kUnix) {
        ranks_.back().options.listen.port = held_.emplace_back().port();
      }
    }
  }

  ThreadRank& rank(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  void for_all(const std::function<void(SocketPeersOptions&)>& change) {
    for (ThreadRank& rank : ranks_) change(rank.options);
  }

  // Every rank's thread listens, connects and runs `body`; what it throws is returned, by rank.
  std::vector<Status> run(const std::function<void(SocketPeers&)>& body) {
    std::vector<Status> ends(ranks_.size());
    std::barrier listening(static_cast<std::ptrdiff_t>(ranks_.size()));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          AsioLoop loop;
          SocketPeers peers(loop, *ranks_[i].network, ranks_[i].options, quiet());
          peers.listen().throw_if_error();
          bound_[i] = peers.bound();
          listening.arrive_and_wait();
          peers.connect(ranks_[i].endpoints ? ranks_[i].endpoints(bound_) : bound_);
          body(peers);
        } catch (...) {
          ends[i] = caught_status("rank");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }
  // The same, where nothing is to go wrong, and all leave in good order.
  void run_well(const std::function<void(SocketPeers&)>& body) {
    const auto ends = run([&](SocketPeers& peers) {
      body(peers);
      EXPECT_TRUE(peers.leave(20s)) << "rank " << peers.rank();
    });
    for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.to_string();
  }

 private:
  AsioNetwork network_;
  std::vector<fleet::testing::HeldPort> held_;
  std::vector<ThreadRank> ranks_;
  std::vector<Endpoint> bound_;
};

}  // namespace fleet::transport::testing

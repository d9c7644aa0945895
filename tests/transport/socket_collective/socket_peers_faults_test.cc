// Ranks as threads of this process, over real sockets that break, and with ranks that are not as
// they should be.
#include <array>
#include <csignal>
#include <gtest/gtest.h>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/testing/delay_proxy.h"
#include "tests/transport/relay.h"
#include "tests/transport/socket_collective/rank_group.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder
using fleet::testing::DelayProxy;

std::string text_of(const Status& status) {
  return status.to_string();
}

bool mentions(const Status& status, std::string_view what) {
  return text_of(status).find(what) != std::string::npos;
}

// Rank 0 reaches rank 1 by another port.
std::function<std::vector<Endpoint>(std::vector<Endpoint>)> rank_1_at(const Endpoint& endpoint) {
  return [endpoint](std::vector<Endpoint> endpoints) {
    endpoints[1] = endpoint;
    return endpoints;
  };
}

// An exchange after whose failure a rank stays, and answers, until the others have ended too.
class Together {
 public:
  explicit Together(int ranks) : ranks_(ranks) {}
  void exchange(SocketPeers& peers) {
    try {
      expect_exchange(peers, 1, 10);
      ++ended_;
    } catch (const Error&) {
      ++ended_;
      while (ended_ < ranks_) {
        EXPECT_THROW(peers.poll(), Error);
      }
      throw;
    }
  }

 private:
  int ranks_;
  std::atomic<int> ended_{0};
};

// Bytes of an operation between two ranks of which rank 0 sends through `make`'s proxy.
template <class Make>
void expect_exchanges_through(const Make& make) {
  RankThreads ranks(2, TransportChoice::kTcp);
  ranks.rank(0).endpoints = [&](std::vector<Endpoint> endpoints) {
    endpoints[1] = make(endpoints[1]);
    return endpoints;
  };
  ranks.run_well([](SocketPeers& peers) {
    for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
      expect_exchange(peers, sequence, sequence % 4 == 0 ? 2'000'000 : 3000 * sequence);
    }
  });
}

TEST(SocketPeersFaults, ALinkThatIsCutAgainAndAgainDeliversEachMessageOnce) {
  std::unique_ptr<DelayProxy> proxy;
  expect_exchanges_through([&](const Endpoint& target) {
    proxy = std::make_unique<DelayProxy>(
        target, fleet::testing::ProxyFaults{.seed = 5, .max_delay = 200us, .cut = 0.003});
    return proxy->endpoint();
  });
  EXPECT_GT(proxy->cuts(), 0U);
}

TEST(SocketPeersFaults, ATamperedFrameIsSentAgain) {
  std::unique_ptr<Relay> relay;
  std::atomic<int> changed{0};
  expect_exchanges_through([&](const Endpoint& target) {
    uint16_t port = 0;
    const int listener = listen_on_tcp(port);
    relay = std::make_unique<Relay>(listener, target.port,
                                    [&](bool to_server, size_t at, MutableBytes bytes) {
                                      const size_t wanted = 1'500'000;
                                      if (!to_server || at > wanted || at + bytes.size() <= wanted)
                                        return;
                                      bytes[wanted - at] ^= std::byte{1};
                                      ++changed;
                                    });
    return Endpoint{"127.0.0.1", port};
  });
  EXPECT_EQ(changed, 1);
  EXPECT_EQ(relay->connections(), 2);
}

TEST(SocketPeersFaults, ABlackHoleIsNamedAtTheDeadline) {
  RankThreads ranks(2, TransportChoice::kTcp);
  ranks.for_all([](SocketPeersOptions& options) { options.rpc_deadline = 500ms; });
  std::unique_ptr<DelayProxy> proxy;
  ranks.rank(0).endpoints = [&](std::vector<Endpoint> endpoints) {
    proxy = std::make_unique<DelayProxy>(endpoints[1], fleet::testing::ProxyFaults{});
    endpoints[1] = proxy->endpoint();
    return endpoints;
  };
  const auto ends = ranks.run([&](SocketPeers& peers) {
    expect_exchange(peers, 1, 10);
    if (peers.rank() == 0) proxy->hold();
    Exchange exchange(peers, 2, 10);
    wait(peers, exchange.messages());
  });
  EXPECT_EQ(ends[0].code(), ErrorCode::kPeerSilent) << text_of(ends[0]);
  EXPECT_TRUE(mentions(ends[0], "rank 1 does not answer")) << text_of(ends[0]);
  // The lane the other way still works, and rank 1 is told.
  EXPECT_TRUE(mentions(ends[1], "rank 1 does not answer")) << text_of(ends[1]);
  EXPECT_TRUE(mentions(ends[1], "as rank 0 says")) << text_of(ends[1]);
}

TEST(SocketPeersFaults, ARankThatNeverComesIsNamed) {
  RankThreads ranks(3);
  ranks.for_all([](SocketPeersOptions& options) { options.rpc_deadline = 400ms; });
  std::atomic<int> ended{0};
  const auto ends = ranks.run([&](SocketPeers& peers) {
    // It listens, and does nothing more.
    if (peers.rank() == 2) {
      while (ended < 2) std::this_thread::yield();
      return;
    }
    try {
      Exchange exchange(peers, 1, 10);
      wait(peers, exchange.messages());
    } catch (...) {
      ++ended;
      throw;
    }
    ++ended;
  });
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(mentions(ends[static_cast<size_t>(rank)], "did not come")) << text_of(ends[0]);
    EXPECT_TRUE(mentions(ends[static_cast<size_t>(rank)], "rank 2 at 127.0.0.1"))
        << text_of(ends[static_cast<size_t>(rank)]);
    EXPECT_FALSE(mentions(ends[static_cast<size_t>(rank)], "rank 1 at"))
        << text_of(ends[static_cast<size_t>(rank)]);
  }
}

TEST(SocketPeersFaults, ARankWhoseConnectionsAreRefusedIsNamed) {
  uint16_t port = 0;
  const int closed = listen_on_tcp(port);
  ::close(closed);
  const Endpoint nobody{"127.0.0.1", port};
  // One that nobody has seen may still come, until the deadline.
  RankThreads alone(1);
  alone.rank(0).options = options_of_rank(0, 2);
  alone.rank(0).options.rpc_deadline = 300ms;
  alone.rank(0).endpoints = [&](const auto& endpoints) {
    return std::vector<Endpoint>{endpoints[0], nobody};
  };
  const auto use = [](SocketPeers& peers) {
    Exchange exchange(peers, 1, 10);
    wait(peers, exchange.messages(), 20s);
  };
  const Status never = alone.run(use)[0];
  EXPECT_EQ(never.code(), ErrorCode::kPeerLost);
  EXPECT_TRUE(mentions(never, "did not come")) << text_of(never);
  EXPECT_TRUE(mentions(never, "rank 1 at " + nobody.to_string())) << text_of(never);
  // One that is there does not listen where it should.
  RankThreads ranks(2);
  ranks.rank(0).endpoints = rank_1_at(nobody);
  const Status elsewhere = ranks.run(use)[0];
  EXPECT_TRUE(mentions(elsewhere, "connections to it are refused")) << text_of(elsewhere);
  EXPECT_TRUE(mentions(elsewhere, "rank 1 at " + nobody.to_string())) << text_of(elsewhere);
}

TEST(SocketPeersFaults, AWrongSecretIsRefused) {
  RankThreads ranks(2, TransportChoice::kTcp);
  ranks.rank(1).options.secret = Secret::of_text("another secret for tests", "test");
  Together together(2);
  const auto ends = ranks.run([&](SocketPeers& peers) { together.exchange(peers); });
  EXPECT_EQ(ends[0].code(), ErrorCode::kAuthentication) << text_of(ends[0]);
  EXPECT_TRUE(mentions(ends[0], "rank 1 at")) << text_of(ends[0]);
  EXPECT_EQ(ends[1].code(), ErrorCode::kAuthentication) << text_of(ends[1]);
}

TEST(SocketPeersFaults, EndpointsInAnotherOrderAreRefused) {
  RankThreads ranks(3);
  ranks.rank(0).endpoints = [](std::vector<Endpoint> endpoints) {
    std::swap(endpoints[1], endpoints[2]);
    return endpoints;
  };
  Together together(3);
  const auto ends = ranks.run([&](SocketPeers& peers) { together.exchange(peers); });
  EXPECT_EQ(ends[0].code(), ErrorCode::kHandshakeRefused) << text_of(ends[0]);
  EXPECT_TRUE(mentions(ends[0], "who is reached at the address")) << text_of(ends[0]);
}

TEST(SocketPeersFaults, ThePortIsInUse) {
  AsioLoop loop;
  AsioNetwork network;
  SocketPeers first(loop, network, options_of_rank(0, 2), quiet());
  ASSERT_TRUE(first.listen().ok());
  SocketPeersOptions options = options_of_rank(1, 2);
  options.listen = first.bound();
  SocketPeers second(loop, network, options, quiet());
  EXPECT_EQ(second.listen().code(), ErrorCode::kAddressInUse);
}

TEST(SocketPeersFaults, DifferentOperationsAreNamedAtBothRanks) {
  RankThreads ranks(2);
  const auto ends = ranks.run([](SocketPeers& peers) {
    expect_exchange(peers, 1, 10);
    expect_exchange(peers, 2, peers.rank() == 0 ? 1024 : 512);
  });
  for (const Status& end : ends) {
    EXPECT_TRUE(mentions(end, "operation 2, all_gather of 1024 bytes at rank 0")) << text_of(end);
    EXPECT_TRUE(mentions(end, "operation 2, all_gather of 512 bytes at rank 1")) << text_of(end);
  }
}

TEST(SocketPeersFaults, OthersLearnWhyTheJobEnds) {
  RankThreads ranks(3);
  const auto ends = ranks.run([](SocketPeers& peers) {
    expect_exchange(peers, 1, 10);
    // Ranks 0 and 1 have to do with each other only, and rank 2 waits for rank 0.
    const auto messages = peers.messages(gather(2, peers.rank() == 1 ? 512 : 1024));
    std::vector<std::byte> memory(5);
    messages->receive(peers.rank() == 0 ? 1 : 0, memory);
    if (peers.rank() != 2) messages->send(1 - peers.rank(), memory);
    wait(peers, *messages);
  });
  for (const Status& end : ends) {
    EXPECT_TRUE(mentions(end, "operation 2, all_gather of 1024 bytes at rank 0")) << text_of(end);
    EXPECT_TRUE(mentions(end, "operation 2, all_gather of 512 bytes at rank 1")) << text_of(end);
  }
  EXPECT_TRUE(mentions(ends[2], "says")) << text_of(ends[2]);
}

TEST(SocketPeersFaults, ARankThatEndsIsLostAndNamed) {
  for (const TransportChoice choice : {TransportChoice::kTcp, TransportChoice::kUnix}) {
    RankThreads ranks(3, choice);
    const auto ends = ranks.run([](SocketPeers& peers) {
      expect_exchange(peers, 1, 10);
      if (peers.rank() == 1) return;
      expect_exchange(peers, 2, 10);
    });
    for (const size_t rank : {size_t{0}, size_t{2}}) {
      EXPECT_EQ(ends[rank].code(), ErrorCode::kPeerLost) << text_of(ends[rank]);
      EXPECT_TRUE(mentions(ends[rank], "rank 1 was lost")) << text_of(ends[rank]);
    }
  }
}

// Rank 1 in a process of its own, exchanging with rank 0 for ever.
class RankProcess {
 public:
  explicit RankProcess(TransportChoice choice) : choice_(choice), pid_(fork()) {
    if (pid_ != 0) return;
    try {
      run(1, [](SocketPeers& peers) {
        for (uint64_t sequence = 1;; ++sequence) expect_exchange(peers, sequence, 1000);
      });
    } catch (...) {
    }
    _exit(0);
  }
  ~RankProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void signal(int number) const { kill(pid_, number); }
  void run(int rank, const std::function<void(SocketPeers&)>& body) {
    AsioLoop loop;
    AsioNetwork network(choice_);
    SocketPeersOptions options = options_of_rank(rank, 2);
    options.rpc_deadline = 1s;
    std::vector<Endpoint> endpoints;
    for (const auto& port : ports_) endpoints.push_back({"127.0.0.1", port.port()});
    options.listen = endpoints[static_cast<size_t>(rank)];
    SocketPeers peers(loop, network, options, quiet());
    peers.listen().throw_if_error();
    peers.connect(endpoints);
    body(peers);
  }

 private:
  TransportChoice choice_;
  std::array<fleet::testing::HeldPort, 2> ports_;
  pid_t pid_;
};

// What rank 0 ends with when rank 1 is sent a signal in the middle of the job.
Status end_after_signal(TransportChoice choice, int number) {
  RankProcess other(choice);
  try {
    other.run(0, [&](SocketPeers& peers) {
      for (uint64_t sequence = 1; sequence < 1'000'000; ++sequence) {
        if (sequence == 50) other.signal(number);
        Exchange exchange(peers, sequence, 1000);
        wait(peers, exchange.messages());
      }
    });
  } catch (...) {
    return caught_status("rank 0");
  }
  return {};
}

TEST(SocketPeersFaults, AProcessThatIsKilledIsLostAndOneThatIsStoppedSilent) {
  for (const TransportChoice choice : {TransportChoice::kTcp, TransportChoice::kUnix}) {
    const TimePoint begin = steady_clock().now();
    const Status killed = end_after_signal(choice, SIGKILL);
    EXPECT_EQ(killed.code(), ErrorCode::kPeerLost) << text_of(killed);
    EXPECT_TRUE(mentions(killed, "rank 1 was lost")) << text_of(killed);
    EXPECT_LT(steady_clock().now() - begin, 5s);
    const Status stopped = end_after_signal(choice, SIGSTOP);
    EXPECT_EQ(stopped.code(), ErrorCode::kPeerSilent) << text_of(stopped);
    EXPECT_TRUE(mentions(stopped, "rank 1 does not answer")) << text_of(stopped);
  }
}

TEST(SocketPeersFaults, ARankThatLeftHarmsNobodyWhoWantsNothingOfIt) {
  RankThreads ranks(3);
  const auto ends = ranks.run([](SocketPeers& peers) {
    expect_exchange(peers, 1, 10);
    if (peers.rank() == 2) return;
    const auto messages = peers.messages(gather(2, 3));
    std::vector<std::byte> memory(3);
    const TimePoint until = steady_clock().now() + 600ms;
    while (steady_clock().now() < until) {
      peers.poll();
      peers.rest(1s, until);
    }
    messages->receive(1 - peers.rank(), memory);
    messages->send(1 - peers.rank(), memory);
    EXPECT_TRUE(wait(peers, *messages));
    // It is only missed now.
    const auto later = peers.messages(gather(3, 3));
    EXPECT_THROW(later->receive(2, memory), PeerError);
  });
  EXPECT_TRUE(ends[2].ok());
}

TEST(SocketPeersFaults, AnAbortFromAnotherThreadWakesARankAndTellsTheOthers) {
  RankThreads ranks(2);
  const auto ends = ranks.run([](SocketPeers& peers) {
    expect_exchange(peers, 1, 10);
    const auto messages = peers.messages(gather(2, 3));
    std::vector<std::byte> memory(3);
    messages->receive(1 - peers.rank(), memory);
    std::thread other;
    if (peers.rank() == 0) {
      other = std::thread([&peers] {
        peers.failed(Status(ErrorCode::kJobAborted, {.what = "the verdict of the coordinator",
                                                     .where = {},
                                                     .expected = {},
                                                     .got = {},
                                                     .fix = {}}));
      });
    }
    try {
      wait(peers, *messages);
    } catch (...) {
      if (other.joinable()) other.join();
      throw;
    }
  });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), ErrorCode::kJobAborted) << text_of(end);
    EXPECT_TRUE(mentions(end, "the verdict of the coordinator")) << text_of(end);
  }
}

TEST(SocketPeersFaults, GivingUpLetsGoOfTheMemoryInTheMiddleOfAMessage) {
  RankThreads ranks(2);
  std::atomic<bool> gone{false};
  const auto ends = ranks.run([&](SocketPeers& peers) {
    expect_exchange(peers, 1, 10);
    const size_t bytes = size_t{64} << 20;
    auto exchange = std::make_unique<Exchange>(peers, 2, bytes);
    if (peers.rank() == 0) {
      for (int i = 0; i < 20; ++i) peers.poll();
      peers.give_up({});
      // Nothing may be read from, or written to, what is freed here.
      exchange.reset();
      gone = true;
      for (int i = 0; i < 200; ++i) {
        EXPECT_THROW(peers.poll(), PeerError);
      }
      return;
    }
    wait(peers, exchange->messages());
  });
  EXPECT_TRUE(gone);
  EXPECT_TRUE(ends[0].ok()) << text_of(ends[0]);
  EXPECT_TRUE(mentions(ends[1], "rank 0 gave its operations up")) << text_of(ends[1]);
}

}  // namespace
}  // namespace fleet::transport

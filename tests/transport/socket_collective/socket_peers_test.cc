// Ranks as threads of this process, over real sockets.
#include "transport/socket_collective/socket_peers.h"

#include <gtest/gtest.h>

#include "tests/transport/socket_collective/rank_group.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

class OverBoth : public ::testing::TestWithParam<TransportChoice> {};

TEST_P(OverBoth, EveryRankGetsWhatEveryOtherSends) {
  for (const int size : {2, 3, 5}) {
    RankThreads ranks(size, GetParam());
    ranks.run_well([](SocketPeers& peers) {
      uint64_t sequence = 0;
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1} << 20, size_t{100}}) {
        expect_exchange(peers, ++sequence, bytes);
      }
    });
  }
}

TEST_P(OverBoth, MovesMessagesFarAboveWhatIsKept) {
  RankThreads ranks(2, GetParam());
  ranks.run_well([](SocketPeers& peers) { expect_exchange(peers, 1, size_t{80} << 20); });
}

TEST_P(OverBoth, ManyOperationsAreUnderWayAtATime) {
  RankThreads ranks(3, GetParam());
  ranks.for_all([](SocketPeersOptions& options) { options.early_bytes = 100'000; });
  ranks.run_well([](SocketPeers& peers) {
    std::vector<std::unique_ptr<Exchange>> under_way;
    for (uint64_t sequence = 1; sequence <= 40; ++sequence) {
      const size_t bytes = sequence % 5 == 0 ? 300'000 : 1000 * (sequence % 7);
      under_way.push_back(std::make_unique<Exchange>(peers, sequence, bytes));
    }
    // In another order at every rank.
    for (size_t i = 0; i < under_way.size(); ++i) {
      const size_t turn = (i * 7 + static_cast<size_t>(peers.rank()) * 11) % under_way.size();
      ASSERT_TRUE(wait(peers, under_way[turn]->messages()));
      EXPECT_TRUE(under_way[turn]->is_right());
    }
  });
}

TEST_P(OverBoth, MessagesOfOneOperationMatchInOrderOverItsSets) {
  RankThreads ranks(2, GetParam());
  ranks.run_well([](SocketPeers& peers) {
    const OperationId id = gather(1, 0);
    const int other = 1 - peers.rank();
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> got;
    std::vector<std::unique_ptr<MessageSet>> sets;
    for (uint32_t i = 0; i < 30; ++i) {
      sent.push_back(pattern(i * 1000, i));
      got.emplace_back(sent.back().size());
    }
    for (uint32_t i = 0; i < 30; ++i) {
      if (i % 10 == 0) sets.push_back(peers.messages(id));
      sets.back()->send(other, sent[i]);
    }
    for (uint32_t i = 0; i < 30; ++i) {
      if (i % 6 == 0) sets.push_back(peers.messages(id));
      sets.back()->receive(other, got[i]);
    }
    for (const auto& set : sets) ASSERT_TRUE(wait(peers, *set));
    EXPECT_EQ(got, sent);
  });
}

TEST_P(OverBoth, ARankThatIsAheadWaitsWithoutFillingTheOthers) {
  static constexpr uint64_t kEarly = 1 << 20;
  RankThreads ranks(2, GetParam());
  ranks.for_all([](SocketPeersOptions& options) { options.early_bytes = kEarly; });
  ranks.run_well([](SocketPeers& peers) {
    expect_exchange(peers, 1, 0);
    std::vector<std::unique_ptr<Exchange>> under_way;
    // Rank 1 begins the last first and drives its loop meanwhile.
    for (uint64_t i = 0; i < 64; ++i) {
      const uint64_t sequence = 2 + (peers.rank() == 0 ? i : 63 - i);
      under_way.push_back(std::make_unique<Exchange>(peers, sequence, size_t{100'000}));
      peers.poll();
      EXPECT_LE(peers.early_bytes_of(1 - peers.rank()), kEarly);
    }
    for (const auto& exchange : under_way) {
      ASSERT_TRUE(wait(peers, exchange->messages()));
      EXPECT_TRUE(exchange->is_right());
    }
    EXPECT_EQ(peers.early_bytes_of(1 - peers.rank()), 0U);
  });
}

TEST_P(OverBoth, OperationsOfEveryTypeArePossible) {
  RankThreads ranks(2, GetParam());
  ranks.run_well([](SocketPeers& peers) {
    uint64_t sequence = 0;
    for (const ElementType type :
         {ElementType::kFloat32, ElementType::kFloat64, ElementType::kInt64, ElementType::kFloat16,
          ElementType::kBFloat16}) {
      const auto messages = peers.messages({++sequence, CollectiveKind::kAllReduce, type, 1});
      std::byte got{};
      const std::byte mine{7};
      messages->receive(1 - peers.rank(), {&got, 1});
      messages->send(1 - peers.rank(), {&mine, 1});
      ASSERT_TRUE(wait(peers, *messages));
      EXPECT_EQ(got, mine);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, OverBoth,
                         ::testing::Values(TransportChoice::kTcp, TransportChoice::kUnix),
                         [](const auto& choice) {
                           return choice.param == TransportChoice::kTcp ? "Tcp" : "Unix";
                         });

TEST(SocketPeers, ARankThatComputesHoldsNobodyBackForEver) {
  RankThreads ranks(3);
  ranks.run_well([](SocketPeers& peers) {
    for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
      Exchange exchange(peers, sequence, 50'000);
      // Somebody else in turn looks late, and at nothing before.
      if (static_cast<int>(sequence % 3) == peers.rank()) {
        const TimePoint until = steady_clock().now() + 50ms;
        while (steady_clock().now() < until) std::this_thread::yield();
      }
      ASSERT_TRUE(wait(peers, exchange.messages()));
      EXPECT_TRUE(exchange.is_right());
    }
  });
}

TEST(SocketPeers, ARankMayComeLate) {
  RankThreads ranks(3);
  ranks.run_well([](SocketPeers& peers) { expect_exchange(peers, 1, 1000); });
  std::atomic<bool> sent{false};
  // Rank 1 is there, and drives nothing until the others have begun.
  ranks.run_well([&](SocketPeers& peers) {
    if (peers.rank() == 1) {
      while (!sent) std::this_thread::yield();
    }
    Exchange exchange(peers, 1, 10);
    if (peers.rank() == 0) {
      peers.poll();
      sent = true;
    }
    ASSERT_TRUE(wait(peers, exchange.messages()));
    EXPECT_TRUE(exchange.is_right());
    EXPECT_TRUE(peers.all_joined());
  });
}

TEST(SocketPeers, UnfinishedNamesThoseWhoHaveNotSent) {
  RankThreads ranks(3);
  std::atomic<bool> seen{false};
  ranks.run_well([&](SocketPeers& peers) {
    if (peers.rank() == 2) {
      while (!seen) std::this_thread::yield();
    }
    Exchange exchange(peers, 1, 10);
    std::vector<int> missing;
    if (peers.rank() == 0) {
      const TimePoint deadline = steady_clock().now() + 20s;
      do {
        missing.clear();
        peers.poll();
        exchange.messages().unfinished(missing);
      } while (missing != std::vector<int>{2} && steady_clock().now() < deadline);
      EXPECT_EQ(missing, std::vector<int>{2});
      seen = true;
    }
    ASSERT_TRUE(wait(peers, exchange.messages()));
    missing.clear();
    exchange.messages().unfinished(missing);
    EXPECT_TRUE(missing.empty());
  });
}

TEST(SocketPeers, AnOperationThatNobodyWantsAnyMoreLeavesTheOthersAlone) {
  RankThreads ranks(2);
  ranks.run_well([](SocketPeers& peers) {
    const int other = 1 - peers.rank();
    std::vector<std::byte> memory(1000);
    {
      const auto dropped = peers.messages(gather(1, 1000));
      dropped->receive(other, memory);
      if (peers.rank() == 0) dropped->send(other, said(0, 1, 1000));
    }
    expect_exchange(peers, 2, 200'000);
    expect_exchange(peers, 3, 0);
  });
}

TEST(SocketPeers, RefusesRanksThatAreNotThereAndCallsInTheWrongOrder) {
  AsioLoop loop;
  AsioNetwork network;
  SocketPeers peers(loop, network, options_of_rank(0, 2), quiet());
  const auto messages = peers.messages(gather(1, 1));
  EXPECT_THROW(messages->send(0, {}), UsageError);
  EXPECT_THROW(messages->send(2, {}), UsageError);
  EXPECT_THROW(messages->receive(-1, {}), UsageError);
  EXPECT_THROW(messages->receive(1, {}), UsageError);
  EXPECT_THROW(peers.connect({Endpoint{"127.0.0.1", 1}}), UsageError);
}

}  // namespace
}  // namespace fleet::transport

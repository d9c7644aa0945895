// Every operation over messages, under virtual time: any number of ranks and shards, any type,
// messages in any order.
#include "transport/collective/communicator.h"

#include <bit>
#include <gmock/gmock.h>
#include <latch>
#include <thread>

#include "base/strings.h"
#include "tests/transport/collective/rank_threads.h"
#include "tests/transport/collective/reference.h"
#include "tests/transport/collective/virtual_ranks.h"

namespace fleet::transport {
namespace {

using ::testing::HasSubstr;
using namespace testing_reference;

constexpr CollectiveLabel kLabel{.phase = "test", .step = 7};

TimePoint soon() {
  return steady_clock().now() + std::chrono::seconds(20);
}

// One way for each algorithm of an all-reduce.
enum class Way { kChosen, kDirect, kDoubling, kHalving, kPieces };

CommunicatorOptions options_of(Way way) {
  constexpr size_t kAll = size_t{1} << 40;
  switch (way) {
    case Way::kChosen:
      return {};
    case Way::kDirect:
      return {.direct_ranks = 1000, .direct_limit_bytes = kAll};
    case Way::kDoubling:
      return {.direct_ranks = 0, .doubling_limit_bytes = kAll};
    case Way::kHalving:
      return {.direct_ranks = 0, .doubling_limit_bytes = 0, .least_piece_bytes = kAll};
    case Way::kPieces:
      return {.direct_limit_bytes = 0,
              .doubling_limit_bytes = 0,
              .piece_bytes = 128,
              .least_piece_bytes = 0,
              .window = 2};
  }
  return {};
}

constexpr Way kWays[] = {Way::kChosen, Way::kDirect, Way::kDoubling, Way::kHalving, Way::kPieces};
constexpr int kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};

// Operations of all ranks, started in a stirred order, several under way together; then run().
class Calls {
 public:
  explicit Calls(VirtualRanks& ranks) : ranks_(ranks), tokens_(static_cast<size_t>(ranks.size())) {}

  template <class Call>
  void start(const Call& call) {
    for (const int rank : ranks_.stirred()) {
      tokens_[static_cast<size_t>(rank)].push_back(call(ranks_.at(rank), rank));
    }
  }
  void finish() {
    ASSERT_TRUE(ranks_.run(tokens_));
    for (auto& own : tokens_) {
      for (auto& token : own) {
        const Status status = token.wait(soon());
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
    }
  }

 private:
  VirtualRanks& ranks_;
  std::vector<std::vector<CollectiveToken>> tokens_;
};

// An all-reduce and a reduce-scatter, both at once.
template <class T>
void check_reductions(VirtualRanks& ranks, int shards, size_t count) {
  const auto size = static_cast<size_t>(ranks.size());
  const ShardLayout layout(ranks.size(), shards);
  const auto expected = sum_of_contributions<T>(layout, count);
  std::vector<std::vector<std::vector<T>>> parts(size);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    parts[static_cast<size_t>(rank)] = contributions<T>(layout, rank, count);
  }
  std::vector<size_t> counts(size, count / size);
  counts[0] += count % size;
  std::vector<std::vector<T>> sums(size, std::vector<T>(count));
  std::vector<std::vector<T>> pieces(size);
  for (size_t r = 0; r < size; ++r) pieces[r].resize(counts[r]);

  Calls calls(ranks);
  calls.start([&](CollectiveCommunicator& comm, int rank) {
    const auto r = static_cast<size_t>(rank);
    return comm.all_reduce(layout, kType<T>, pointers(parts[r]), sums[r].data(), count, kLabel);
  });
  calls.start([&](CollectiveCommunicator& comm, int rank) {
    const auto r = static_cast<size_t>(rank);
    return comm.reduce_scatter(layout, kType<T>, pointers(parts[r]), pieces[r].data(), counts,
                               kLabel);
  });
  calls.finish();
  auto begin = expected.begin();
  for (size_t r = 0; r < size; ++r) {
    const auto end = begin + static_cast<long>(counts[r]);
    ASSERT_TRUE(same_bits(sums[r], expected)) << "all_reduce at rank " << r;
    ASSERT_TRUE(same_bits(pieces[r], std::vector<T>(begin, end))) << "reduce_scatter at " << r;
    begin = end;
  }
  Calls in_place(ranks);
  in_place.start([&](CollectiveCommunicator& comm, int rank) {
    auto& own = parts[static_cast<size_t>(rank)];
    return comm.all_reduce(layout, kType<T>, pointers(own), own.back().data(), count, kLabel);
  });
  in_place.finish();
  for (size_t r = 0; r < size; ++r) {
    ASSERT_TRUE(same_bits(parts[r].back(), expected)) << "in place at rank " << r;
  }
}

template <class T>
class Reductions : public ::testing::Test {};
using Types = ::testing::Types<float, double, int64_t, Float16, BFloat16>;
TYPED_TEST_SUITE(Reductions, Types);

TYPED_TEST(Reductions, HaveTheBitsOfTheTreeAtAnyNumberOfRanks) {
  for (const Way way : kWays) {
    for (const int n : kRanks) {
      VirtualRanks ranks(n, 1, {.jitter = std::chrono::microseconds(50)}, options_of(way));
      for (const int shards : {n, n + 1, 2 * n + 3}) {
        SCOPED_TRACE(::testing::Message()
                     << n << " ranks, " << shards << " shards, way " << static_cast<int>(way));
        for (const size_t count : {1, 17, 300}) {
          check_reductions<TypeParam>(ranks, shards, count);
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(Reductions, OfNothingAreDone) {
  for (const int n : {2, 9}) {
    VirtualRanks ranks(n, 1);
    check_reductions<TypeParam>(ranks, n, 0);
  }
}

// Whatever the number of ranks, and whoever adds: one rounding, at the end.
TEST(HalvesTest, AreRoundedOnceWhoeverAdds) {
  constexpr int kShards = 9;
  std::vector<std::vector<Float16>> shards(kShards);
  for (size_t s = 0; s < kShards; ++s) shards[s] = shard_values<Float16>(static_cast<int>(s), 100);
  const auto expected = sum_of_arrays(TreeSum(kShards), shards, 100);
  const ShardLayout layout(kShards, kShards);
  for (const Way way : kWays) {
    VirtualRanks ranks(kShards, 3, {}, options_of(way));
    std::vector<std::vector<Float16>> sums(kShards, std::vector<Float16>(100));
    Calls calls(ranks);
    calls.start([&](CollectiveCommunicator& comm, int rank) {
      const auto r = static_cast<size_t>(rank);
      const void* part = shards[r].data();
      return comm.all_reduce(layout, ElementType::kFloat16, {&part, 1}, sums[r].data(), 100,
                             kLabel);
    });
    calls.finish();
    for (const auto& sum : sums) EXPECT_TRUE(same_bits(sum, expected));
  }
}

// 2049 is no float16 and 2048 + 1 + 1 is 2050, which one rounding keeps and two do not.
TEST(HalvesTest, SumsDoNotLoseWhatASingleRoundingKeeps) {
  const std::vector<Float16> values = {rounded<Float16>(2048), rounded<Float16>(1),
                                       rounded<Float16>(1), rounded<Float16>(0)};
  const ShardLayout layout(4, 4);
  for (const Way way : kWays) {
    VirtualRanks ranks(4, 3, {}, options_of(way));
    std::vector<Float16> sums(4);
    Calls calls(ranks);
    calls.start([&](CollectiveCommunicator& comm, int rank) {
      const void* part = &values[static_cast<size_t>(rank)];
      return comm.all_reduce(layout, ElementType::kFloat16, {&part, 1},
                             &sums[static_cast<size_t>(rank)], 1, kLabel);
    });
    calls.finish();
    for (const Float16 sum : sums) EXPECT_EQ(widened(sum), 2050);
  }
}

void check_exchanges(VirtualRanks& ranks, size_t each, int root) {
  const auto size = static_cast<size_t>(ranks.size());
  std::vector<std::vector<std::byte>> all(size, std::vector<std::byte>(size * each));
  std::vector<std::vector<std::byte>> said(size, std::vector<std::byte>(each));
  std::vector<std::byte> expected;
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i < each; ++i) {
      all[r][r * each + i] = said[r][i] = static_cast<std::byte>(31 * r + i);
      expected.push_back(said[r][i]);
    }
  }
  const std::vector<std::byte> of_root = said[static_cast<size_t>(root)];
  Calls calls(ranks);
  calls.start([&](CollectiveCommunicator& comm, int rank) {
    return comm.broadcast(said[static_cast<size_t>(rank)], root, kLabel);
  });
  calls.start([&](CollectiveCommunicator& comm, int rank) {
    auto& own = all[static_cast<size_t>(rank)];
    return comm.all_gather(std::span(own).subspan(static_cast<size_t>(rank) * each, each), own,
                           kLabel);
  });
  calls.start([&](CollectiveCommunicator& comm, int) { return comm.barrier(kLabel); });
  calls.finish();
  for (size_t r = 0; r < size; ++r) {
    ASSERT_EQ(all[r], expected);
    ASSERT_EQ(said[r], of_root);
  }
}

TEST(ExchangesTest, ReachEveryRankAtAnyNumberOfRanks) {
  for (const Way way : kWays) {
    for (const int n : kRanks) {
      VirtualRanks ranks(n, 1, {.jitter = std::chrono::microseconds(50)}, options_of(way));
      for (const size_t each : {0, 1, 100, 1000}) {
        for (const int root : {0, n / 2, n - 1}) check_exchanges(ranks, each, root);
      }
    }
  }
}

TEST(ExchangesTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  for (const int n : {2, 3, 8, 9, 11}) {
    for (int late = 0; late < n; ++late) {
      VirtualRanks ranks(n, 1);
      std::vector<std::vector<CollectiveToken>> tokens(static_cast<size_t>(n));
      for (int rank = 0; rank < n; ++rank) {
        if (rank == late) continue;
        tokens[static_cast<size_t>(rank)].push_back(ranks.at(rank).barrier(kLabel));
      }
      EXPECT_FALSE(ranks.run(tokens));
      for (auto& own : tokens) {
        for (auto& token : own) EXPECT_FALSE(token.test());
      }
      tokens[static_cast<size_t>(late)].push_back(ranks.at(late).barrier(kLabel));
      EXPECT_TRUE(ranks.run(tokens));
    }
  }
}

// Several operations under way, of several ways, while messages pass each other.
TEST(SchedulesTest, AThousandSeedsGiveTheSameBits) {
  constexpr size_t kCounts[] = {3, 700, 64, 2000};
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const int n = 2 + static_cast<int>(seed % 8);
    const int shards = n + static_cast<int>(seed / 8 % 4);
    const ShardLayout layout(n, shards);
    VirtualRanks ranks(n, seed, {.jitter = std::chrono::microseconds(200)},
                       {.direct_ranks = static_cast<int>(seed % 5),
                        .direct_limit_bytes = 4000,
                        .doubling_limit_bytes = 300,
                        .piece_bytes = 256,
                        .least_piece_bytes = 800,
                        .window = 1 + static_cast<int>(seed % 3)});
    std::vector<std::vector<std::vector<std::vector<float>>>> parts(std::size(kCounts));
    std::vector<std::vector<std::byte>> words(static_cast<size_t>(n), std::vector<std::byte>(900));
    words[0].assign(900, std::byte{7});
    Calls calls(ranks);
    for (size_t k = 0; k < parts.size(); ++k) {
      for (int rank = 0; rank < n; ++rank) {
        parts[k].push_back(contributions<float>(layout, rank, kCounts[k]));
      }
      calls.start([&](CollectiveCommunicator& comm, int rank) {
        auto& own = parts[k][static_cast<size_t>(rank)];
        return comm.all_reduce(layout, ElementType::kFloat32, pointers(own), own[0].data(),
                               kCounts[k], kLabel);
      });
      if (k != 1) continue;
      calls.start([&](CollectiveCommunicator& comm, int rank) {
        return comm.broadcast(words[static_cast<size_t>(rank)], 0, kLabel);
      });
    }
    calls.finish();
    for (size_t k = 0; k < parts.size(); ++k) {
      const auto expected = local_sum<float>(shards, kCounts[k]);
      for (const auto& own : parts[k]) ASSERT_TRUE(same_bits(own[0], expected)) << "seed " << seed;
    }
    for (const auto& word : words) ASSERT_EQ(word, words[0]);
  }
}

TEST(MessagesTest, GrowWithTheLogarithmOfTheRanks) {
  for (const int n : {9, 16, 33, 256}) {
    const auto most = static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(n)));
    const ShardLayout layout(n, n);
    for (const size_t count : {1, 20000}) {
      VirtualRanks ranks(n, 1);
      std::vector<float> values(count);
      std::vector<float> out(count);
      const void* part = values.data();
      Calls calls(ranks);
      calls.start([&](CollectiveCommunicator& comm, int) {
        return comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, out.data(), count,
                               kLabel);
      });
      calls.finish();
      for (int rank = 0; rank < n; ++rank) {
        EXPECT_LE(ranks.sent(rank).messages, count == 1 ? most : 2 * most);
      }
    }
    VirtualRanks ranks(n, 1);
    Calls calls(ranks);
    calls.start([&](CollectiveCommunicator& comm, int) { return comm.barrier(kLabel); });
    calls.finish();
    for (int rank = 0; rank < n; ++rank) EXPECT_LE(ranks.sent(rank).messages, most);
  }
}

TEST(TextsTest, OfAnyLengthReachEveryRank) {
  for (const int n : {1, 2, 5, 9}) {
    run_ranks(n, [](CollectiveCommunicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      const auto size = static_cast<size_t>(comm.size());
      const auto check = [&](const std::function<std::string(size_t)>& text_of) {
        const auto texts = all_gather_texts(comm, text_of(rank), kLabel, soon());
        ASSERT_TRUE(texts.ok()) << texts.status().to_string();
        ASSERT_EQ(texts.value().size(), size);
        for (size_t i = 0; i < size; ++i) EXPECT_EQ(texts.value()[i], text_of(i));
      };
      check([](size_t i) { return std::string(i, 'x'); });
      check([](size_t i) { return i == 1 ? std::string(500'000, 'y') : std::string(i % 2, 'z'); });
      check([](size_t) { return std::string(); });
    });
  }
}

TEST(MissingRankTest, IsNamedAmongManyAndThoseThatWaitAreNot) {
  std::latch given_up(10);
  run_ranks(11, [&](CollectiveCommunicator& comm) {
    EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
    if (comm.rank() == 5) return given_up.wait();
    const Status status =
        comm.barrier(kLabel).wait(steady_clock().now() + std::chrono::milliseconds(600));
    EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(status.text().what, HasSubstr("rank 5 did not come"));
    given_up.count_down();
  });
}

TEST(MissingRankTest, ARollCallOfASlowRankHarmsNothing) {
  run_ranks(9, [&](CollectiveCommunicator& comm) {
    if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    const TimePoint deadline = steady_clock().now() + std::chrono::seconds(1);
    EXPECT_TRUE(comm.barrier(kLabel).wait(deadline).ok());
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
  });
}

TEST(AbortTest, FromAnotherThreadEndsAWait) {
  InProcessGroup group(9);
  auto waits = group.member(0);
  auto token = waits->barrier(kLabel);
  std::jthread other(
      [&] { waits->abort(Status(ErrorCode::kJobAborted, {.what = "worker/1 died"})); });
  EXPECT_EQ(token.wait(soon()).text().what, "worker/1 died");
}

TEST(MismatchTest, OfKindTypeOrCountNamesBothSides) {
  const ShardLayout layout(5, 5);
  std::vector<double> values(4);
  const void* part = values.data();
  const auto reduce = [&](CollectiveCommunicator& comm, ElementType type, size_t count) {
    return comm.all_reduce(layout, type, {&part, 1}, values.data(), count, kLabel);
  };
  const auto check = [&](const std::string& theirs, const auto& call) {
    VirtualRanks ranks(5, 1);
    std::vector<std::vector<CollectiveToken>> tokens(5);
    for (int rank = 0; rank < 4; ++rank) {
      tokens[static_cast<size_t>(rank)].push_back(reduce(ranks.at(rank), ElementType::kFloat32, 3));
    }
    tokens[4].push_back(call(ranks.at(4)));
    (void)ranks.run(tokens);
    size_t told = 0;
    for (int rank = 0; rank < 4; ++rank) {
      auto& token = tokens[static_cast<size_t>(rank)][0];
      if (!token.test()) continue;
      const Status status = token.wait(soon());
      EXPECT_EQ(status.code(), ErrorCode::kPrecondition);
      EXPECT_EQ(status.text().got, str_cat("operation 0, all_reduce of 3 float32 at rank ", rank,
                                           "; operation 0, ", theirs, " at rank 4"));
      ++told;
    }
    EXPECT_GE(told, 1u);
  };
  check("all_reduce of 4 float32",
        [&](CollectiveCommunicator& comm) { return reduce(comm, ElementType::kFloat32, 4); });
  check("all_reduce of 3 float64",
        [&](CollectiveCommunicator& comm) { return reduce(comm, ElementType::kFloat64, 3); });
  check("barrier", [&](CollectiveCommunicator& comm) { return comm.barrier(kLabel); });
}

TEST(MismatchTest, OfRootsIsNamedByTheNextOperation) {
  run_ranks(2, [](CollectiveCommunicator& comm) {
    std::vector<std::byte> word(10);
    (void)comm.broadcast(word, comm.rank(), kLabel);
    const Status status = comm.barrier(kLabel).wait(soon());
    EXPECT_EQ(status.code(), ErrorCode::kPrecondition);
    EXPECT_THAT(status.text().got, HasSubstr("broadcast of 10 bytes at rank"));
    EXPECT_THAT(status.text().got, HasSubstr("broadcast of 10 bytes (with messages"));
  });
}

}  // namespace
}  // namespace fleet::transport

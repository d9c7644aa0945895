// Collective operations and messages through shared memory, of ranks that are threads.
#include "transport/shared_collective/shared_peers.h"

#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>

#include "tests/transport/collective/reference.h"
#include "tests/transport/shared_collective/shared_ranks.h"

namespace fleet::transport {
namespace {

using namespace testing;            // NOLINT: the helpers of this folder
using namespace testing_reference;  // NOLINT

std::vector<std::byte> pattern(size_t bytes, int seed) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(seed) * 13);
  }
  return made;
}

template <class T>
void check_reductions(CollectiveCommunicator& comm, int shards, size_t count) {
  const ShardLayout layout(comm.size(), shards);
  const auto expected = sum_of_contributions<T>(layout, count);
  auto parts = contributions<T>(layout, comm.rank(), count);
  std::vector<T> out(count);
  const auto sum = [&](T* into) {
    return comm.all_reduce(layout, kType<T>, pointers(parts), into, count, kLabel).wait(soon());
  };
  Status status = sum(out.data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_TRUE(same_bits(out, expected)) << comm.size() << " ranks, " << count;
  const auto size = static_cast<size_t>(comm.size());
  std::vector<size_t> counts(size, count / size);
  counts[0] += count % size;
  const auto rank = static_cast<size_t>(comm.rank());
  std::vector<T> piece(counts[rank]);
  status = comm.reduce_scatter(layout, kType<T>, pointers(parts), piece.data(), counts, kLabel)
               .wait(soon());
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto begin =
      expected.begin() + static_cast<long>(rank == 0 ? 0 : counts[0] + (rank - 1) * counts[1]);
  ASSERT_TRUE(same_bits(piece, std::vector<T>(begin, begin + static_cast<long>(counts[rank]))));
  status = sum(parts.back().data());
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_TRUE(same_bits(parts.back(), expected)) << "in place";
}

template <class T>
class SharedReductions : public ::testing::Test {};
using Types = ::testing::Types<float, double, int64_t, Float16, BFloat16>;
TYPED_TEST_SUITE(SharedReductions, Types);

TYPED_TEST(SharedReductions, HaveTheBitsOfTheTree) {
  for (const int ranks : {2, 3, 4, 6}) {
    for (const int shards : {ranks, 2 * ranks + 3}) {
      run_shared_ranks(ranks, [&](CollectiveCommunicator& comm) {
        for (const size_t count : {0, 1, 17, 4097, 20'011}) {
          check_reductions<TypeParam>(comm, shards, count);
        }
      });
    }
  }
}

TEST(SharedPeers, LargeArraysGoInPieces) {
  for (const int ranks : {2, 3}) {
    run_shared_ranks(ranks, [&](CollectiveCommunicator& comm) {
      check_reductions<float>(comm, ranks, 600'001);
    });
  }
}

TEST(SharedPeers, ArraysLargerThanTheCachesMayLieAnywhere) {
  run_shared_ranks(2, [](CollectiveCommunicator& comm) {
    constexpr size_t kCount = 2'200'003;  // more than 8 MiB
    const ShardLayout layout(2, 2);
    const auto expected = sum_of_contributions<float>(layout, kCount);
    const auto parts = contributions<float>(layout, comm.rank(), kCount);
    for (size_t begin = 0; begin < 4; ++begin) {
      std::vector<float> out(kCount + 4, -1.0F);
      const auto status = comm.all_reduce(layout, ElementType::kFloat32, pointers(parts),
                                          out.data() + begin, kCount, kLabel)
                              .wait(soon());
      ASSERT_TRUE(status.ok()) << status.to_string();
      const auto from = out.begin() + static_cast<long>(begin);
      EXPECT_TRUE(same_bits(std::vector<float>(from, from + kCount), expected)) << begin;
      EXPECT_EQ(std::count(out.begin(), from, -1.0F), static_cast<long>(begin));
      EXPECT_EQ(std::count(from + kCount, out.end(), -1.0F), static_cast<long>(4 - begin));
    }
  });
}

TEST(SharedPeers, BytesReachEveryRank) {
  for (const int ranks : {2, 3, 5}) {
    run_shared_ranks(ranks, [](CollectiveCommunicator& comm) {
      for (const size_t bytes :
           {size_t{0}, size_t{1}, size_t{8128}, size_t{8129}, size_t{1'000'003}}) {
        std::vector<std::byte> word = pattern(bytes, comm.rank());
        std::vector<std::byte> all(bytes * static_cast<size_t>(comm.size()));
        EXPECT_TRUE(comm.all_gather(word, all, kLabel).wait(soon()).ok());
        std::vector<std::byte> expected;
        for (int rank = 0; rank < comm.size(); ++rank) {
          const auto said = pattern(bytes, rank);
          expected.insert(expected.end(), said.begin(), said.end());
        }
        EXPECT_EQ(all, expected);
        EXPECT_TRUE(comm.broadcast(word, comm.size() - 1, kLabel).wait(soon()).ok());
        EXPECT_EQ(word, pattern(bytes, comm.size() - 1));
        EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
      }
    });
  }
}

TEST(SharedPeers, ManyOperationsAreUnderWayAtATime) {
  run_shared_ranks(3, [](CollectiveCommunicator& comm) {
    const ShardLayout layout(3, 3);
    std::vector<std::vector<float>> values;
    std::vector<CollectiveToken> tokens;
    tokens.reserve(40);
    for (size_t i = 0; i < 40; ++i)
      values.push_back(shard_values<float>(comm.rank(), 1 + 9000 * (i % 7)));
    for (auto& own : values) {
      const void* part = own.data();
      tokens.push_back(comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, own.data(),
                                       own.size(), kLabel));
    }
    for (size_t i = tokens.size(); i-- > 0;) {
      ASSERT_TRUE(tokens[i].wait(soon()).ok());
      EXPECT_TRUE(same_bits(values[i], local_sum<float>(3, values[i].size())));
    }
  });
}

bool wait(SharedPeers& peers, MessageSet& messages) {
  const TimePoint deadline = soon();
  while (steady_clock().now() < deadline) {
    peers.poll();
    if (messages.test()) return true;
    peers.rest(std::chrono::seconds(1), deadline);
  }
  return false;
}

TEST(SharedPeers, MessagesThatAreAheadAreOfferedAndComeWhenTheyAreAskedFor) {
  SharedGroup group(2);
  constexpr size_t kBytes = 24 * 1024 * 1024;
  const auto rank = [&](int own, bool ahead) {
    const auto peers = group.peers(own);
    const int other = 1 - own;
    std::vector<std::unique_ptr<MessageSet>> sets;
    std::vector<std::vector<std::byte>> got(3, std::vector<std::byte>(kBytes));
    const auto mine = pattern(kBytes, own);
    for (uint64_t i = 0; i < 3; ++i) {
      sets.push_back(peers->messages({i, CollectiveKind::kAllGather, {}, kBytes}));
    }
    // In another order at each rank.
    for (size_t i = 0; i < 3; ++i) sets[ahead ? i : 2 - i]->send(other, mine);
    for (size_t i = 0; i < 3; ++i) {
      const size_t turn = ahead ? 2 - i : i;
      sets[turn]->receive(other, got[turn]);
      peers->poll();
    }
    for (const auto& set : sets) EXPECT_TRUE(wait(*peers, *set));
    for (const auto& bytes : got) EXPECT_TRUE(bytes == pattern(kBytes, other));
    EXPECT_TRUE(wait(*peers, *peers->messages({4, CollectiveKind::kBarrier})));
  };
  std::jthread first([&] { rank(0, true); });
  std::jthread second([&] { rank(1, false); });
}

TEST(SharedPeers, RefuseRanksThatAreNotThere) {
  SharedGroup group(2);
  const auto peers = group.peers(0);
  const auto messages = peers->messages({0, CollectiveKind::kBarrier});
  EXPECT_THROW(messages->send(0, {}), UsageError);
  EXPECT_THROW(messages->send(2, {}), UsageError);
  EXPECT_THROW(messages->receive(-1, {}), UsageError);
}

}  // namespace
}  // namespace fleet::transport

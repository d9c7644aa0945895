// Several communicators of NCCL that take turns, and sums of groups of ranks, above the double of
// the library.
#include <gmock/gmock.h>
#include <numeric>

#include "tests/transport/collective/reference.h"
#include "tests/transport/nccl/nccl_jobs.h"

namespace fleet::transport {
namespace {

using namespace testing;            // NOLINT: the helpers of this folder
using namespace testing_reference;  // NOLINT

constexpr size_t kCount = 4097;

// The sum of arrays that differ from one another by `number`.
template <class T>
struct Numbered {
  Numbered(CollectiveCommunicator& comm, const ShardLayout& layout)
      : parts(contributions<T>(layout, comm.rank(), kCount)),
        out(kCount),
        token(comm.all_reduce(layout, kType<T>, pointers(parts), out.data(), kCount, kLabel)) {}

  std::vector<std::vector<T>> parts;
  std::vector<T> out;
  CollectiveToken token;
};

template <class T>
void check_grouped(const std::shared_ptr<FakeWorld>& world, const NcclJob& job, int shards) {
  run_ranks(
      world,
      [&](CollectiveCommunicator& comm) {
        const ShardLayout layout(comm.size(), shards);
        Numbered<T> sum(comm, layout);
        const Status status = sum.token.wait(soon());
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_TRUE(same_bits(sum.out, sum_of_contributions<T>(layout, kCount)))
            << comm.size() << " ranks, " << shards << " shards";
      },
      job);
}

TEST(NcclRings, TakeTurnsAndSumToTheBitsOfTheTree) {
  const auto world = world_of(3);
  const NcclJob job{.options = {.piece_bytes = 8192}, .rings = 3};
  run_ranks(
      world,
      [](CollectiveCommunicator& comm) {
        const ShardLayout layout(3, 5);
        const auto expected = sum_of_contributions<float>(layout, kCount);
        std::vector<Numbered<float>> sums;
        sums.reserve(8);
        for (int i = 0; i < 8; ++i) sums.emplace_back(comm, layout);
        EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
        // The last one first.
        for (size_t i = sums.size(); i-- > 0;) {
          EXPECT_TRUE(sums[i].token.wait(soon()).ok());
          EXPECT_TRUE(same_bits(sums[i].out, expected)) << i;
        }
      },
      job);
  EXPECT_EQ(world->made(), 9);
  EXPECT_EQ(world->destroyed(), 9);
  EXPECT_EQ(world->aborts(), 0);
}

TEST(NcclRings, OneThatStandsStillDoesNotHoldUpTheOther) {
  const auto world = world_of(2);
  run_ranks(
      world,
      [](CollectiveCommunicator& comm) {
        std::vector<std::byte> bytes(8);
        // Operations 0 and 2 are those of one ring, of which rank 1 comes late to the first.
        if (comm.rank() == 0) {
          auto first = comm.broadcast(bytes, 1, kLabel);
          EXPECT_TRUE(comm.broadcast(bytes, 0, kLabel).wait(soon()).ok());
          EXPECT_FALSE(first.test());
          EXPECT_TRUE(comm.broadcast(bytes, 0, kLabel).wait(soon(std::chrono::seconds(1))).code() ==
                      ErrorCode::kPeerLost);
        }
      },
      {.rings = 2});
}

TEST(NcclRings, AllEndWithTheFirstThatFails) {
  const auto world = world_of(2);
  run_ranks(world,
            [](CollectiveCommunicator& comm) {
              if (comm.rank() == 1) return;
              const ShardLayout layout(2, 2);
              Numbered<float> first(comm, layout);
              Numbered<float> second(comm, layout);
              comm.abort(Status(ErrorCode::kJobAborted, {.what = "rank 1 was killed"}));
              for (auto* sum : {&second, &first}) {
                EXPECT_EQ(sum->token.wait(soon()).text().what, "rank 1 was killed");
              }
            },
            {.rings = 2});
  EXPECT_EQ(world->aborts(), 2);
}

TEST(NcclGroups, SumFirstToTheBitsOfTheTree) {
  struct Case {
    int shards;
    std::vector<int> groups;
  };
  const Case cases[] = {{4, {2, 2}}, {8, {2, 2}}, {3, {2, 1}}, {6, {2, 2, 2}}, {6, {4, 2}}};
  for (const auto& [shards, groups] : cases) {
    const int ranks = std::accumulate(groups.begin(), groups.end(), 0);
    const auto world = world_of(ranks);
    const NcclJob job{.options = {.piece_bytes = 4096}, .rings = 2, .groups = groups};
    check_grouped<float>(world, job, shards);
    EXPECT_EQ(world->bytes_sent(0, ranks), 0U);
    EXPECT_GT(world->bytes_sent(0, groups.front()), 0U);
    EXPECT_EQ(world->aborts(), 0);
    check_grouped<double>(world_of(ranks), job, shards);
    check_grouped<int64_t>(world_of(ranks), job, shards);
  }
}

TEST(NcclGroups, OnlyTheFirstOfEachSendsToOtherGroups) {
  const auto world = world_of(8);
  check_grouped<float>(world, {.groups = {4, 4}}, 8);
  EXPECT_GT(world->bytes_sent(0, 2), 0U);
  EXPECT_GT(world->bytes_sent(4, 2), 0U);
  for (const int rank : {1, 2, 3, 5, 6, 7}) EXPECT_EQ(world->bytes_sent(rank, 2), 0U);
}

TEST(NcclGroups, ThatAreNoNodesSumWithAllRanks) {
  for (const int shards : {6, 12}) {
    const auto world = world_of(6);
    check_grouped<float>(world, {.groups = {3, 3}}, shards);
    EXPECT_GT(world->bytes_sent(0, 6), 0U);
    EXPECT_EQ(world->bytes_sent(0, 3), 0U);
  }
}

TEST(NcclGroups, SumSixteenBitsWithAllRanks) {
  const auto world = world_of(4);
  check_grouped<BFloat16>(world, {.groups = {2, 2}}, 4);
  EXPECT_GT(world->bytes_sent(0, 4), 0U);
}

TEST(NcclGroups, OfAnySizesSumFast) {
  run_ranks(world_of(5),
            [](CollectiveCommunicator& comm) {
              const ShardLayout layout(5, 7);
              const auto expected = sum_of_contributions<double>(layout, kCount);
              Numbered<double> sum(comm, layout);
              ASSERT_TRUE(sum.token.wait(soon()).ok());
              for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(sum.out[i], expected[i], 1e-9);
            },
            {.options = {.ordered = false}, .groups = {3, 2}});
}

TEST(NcclGroups, FindTheirNodes) {
  EXPECT_TRUE(groups_are_nodes(ShardLayout(8, 8), {4, 4}));
  EXPECT_TRUE(groups_are_nodes(ShardLayout(8, 16), {4, 4}));
  EXPECT_TRUE(groups_are_nodes(ShardLayout(12, 12), {8, 4}));
  EXPECT_FALSE(groups_are_nodes(ShardLayout(12, 12), {6, 6}));
  EXPECT_FALSE(groups_are_nodes(ShardLayout(8, 9), {4, 4}));
  EXPECT_FALSE(groups_are_nodes(ShardLayout(4, 4), {1, 2, 1}));
}

}  // namespace
}  // namespace fleet::transport

#include "transport/collective/collective.h"

#include <gmock/gmock.h>

#include "tests/transport/collective/rank_threads.h"
#include "tests/transport/collective/reference.h"

namespace fleet::transport {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing_reference::contributions;
using testing_reference::kType;
using testing_reference::local_sum;
using testing_reference::pointers;
using testing_reference::run_ranks;
using testing_reference::same_bits;

constexpr CollectiveLabel kLabel{.phase = "test", .step = 7};

TimePoint soon() {
  return steady_clock().now() + std::chrono::seconds(20);
}

template <class T>
class InProcessReduction : public ::testing::Test {};
using Types = ::testing::Types<float, double, int64_t>;
TYPED_TEST_SUITE(InProcessReduction, Types);

TYPED_TEST(InProcessReduction, AllReduceHasTheBitsOfALocalRun) {
  using T = TypeParam;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int shards = ranks; shards <= 2 * ranks + 3; ++shards) {
      const ShardLayout layout(ranks, shards);
      for (const size_t count : {0, 1, 2, 3, 17, 600}) {
        const auto expected = local_sum<T>(shards, count);
        run_ranks(ranks, [&](CollectiveCommunicator& comm) {
          const auto parts = contributions<T>(layout, comm.rank(), count);
          std::vector<T> out(count);
          auto token =
              comm.all_reduce(layout, kType<T>, pointers(parts), out.data(), count, kLabel);
          EXPECT_TRUE(token.wait(soon()).ok());
          EXPECT_TRUE(same_bits(out, expected)) << ranks << " ranks, " << shards << " shards";
        });
      }
    }
  }
}

TYPED_TEST(InProcessReduction, ReduceScatterGivesEachRankItsPiece) {
  using T = TypeParam;
  const ShardLayout layout(3, 7);
  const std::vector<size_t> counts = {5, 0, 8};
  const auto expected = local_sum<T>(7, 13);
  run_ranks(3, [&](CollectiveCommunicator& comm) {
    const auto parts = contributions<T>(layout, comm.rank(), 13);
    const auto rank = static_cast<size_t>(comm.rank());
    std::vector<T> out(counts[rank]);
    auto token = comm.reduce_scatter(layout, kType<T>, pointers(parts), out.data(), counts, kLabel);
    EXPECT_TRUE(token.wait(soon()).ok());
    const auto begin = expected.begin() + (rank == 0 ? 0 : 5);
    EXPECT_TRUE(same_bits(out, std::vector<T>(begin, begin + static_cast<long>(counts[rank]))));
  });
}

TEST(InProcessTest, AllReduceMayWriteOverItsOwnPart) {
  const ShardLayout layout(2, 2);
  run_ranks(2, [&](CollectiveCommunicator& comm) {
    std::vector<float> values = {static_cast<float>(comm.rank() + 1)};
    const void* part = values.data();
    auto token =
        comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), 1, kLabel);
    EXPECT_TRUE(token.wait(soon()).ok());
    EXPECT_EQ(values[0], 3);
  });
}

TEST(InProcessTest, BroadcastGatherAndBarrier) {
  run_ranks(4, [](CollectiveCommunicator& comm) {
    std::vector<int> values(3, comm.rank());
    EXPECT_TRUE(
        comm.broadcast(std::as_writable_bytes(std::span(values)), 2, kLabel).wait(soon()).ok());
    EXPECT_THAT(values, Each(2));
    std::vector<int> all(4);
    all[static_cast<size_t>(comm.rank())] = 10 * comm.rank();
    auto own = std::as_bytes(std::span(all))
                   .subspan(sizeof(int) * static_cast<size_t>(comm.rank()), sizeof(int));
    EXPECT_TRUE(
        comm.all_gather(own, std::as_writable_bytes(std::span(all)), kLabel).wait(soon()).ok());
    EXPECT_EQ(all, (std::vector<int>{0, 10, 20, 30}));
    EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
  });
}

TEST(InProcessTest, OperationsOverlapAndTokensMayBeDropped) {
  const ShardLayout layout(2, 2);
  run_ranks(2, [&](CollectiveCommunicator& comm) {
    std::vector<double> values(3, comm.rank() + 1.0);
    std::vector<CollectiveToken> tokens;
    for (double& value : values) {
      const void* part = &value;
      tokens.push_back(
          comm.all_reduce(layout, ElementType::kFloat64, {&part, 1}, &value, 1, kLabel));
    }
    { auto dropped = std::move(tokens[1]); }
    EXPECT_TRUE(tokens[2].wait(soon()).ok());
    EXPECT_TRUE(tokens[0].wait(soon()).ok());
    EXPECT_THAT(values, Each(3.0));
  });
}

TEST(InProcessTest, TheRankThatDoesNotComeIsNamedAndTheGroupIsBroken) {
  InProcessGroup group(3);
  auto first = group.member(0);
  auto second = group.member(1);
  auto third = group.member(2);
  auto here = second->barrier(kLabel);
  const Status status = first->barrier(kLabel).wait(steady_clock().now());
  EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
  EXPECT_THAT(status.to_string(), HasSubstr("rank 2"));
  EXPECT_THAT(status.to_string(), HasSubstr("step 7"));
  EXPECT_TRUE(here.test());
  EXPECT_EQ(here.wait(soon()).code(), ErrorCode::kPeerLost);
  EXPECT_EQ(third->barrier(kLabel).wait(soon()).code(), ErrorCode::kPeerLost);
}

TEST(InProcessTest, ARankThatLeavesEndsTheWaitOfOthersAtOnce) {
  InProcessGroup group(2);
  auto stays = group.member(0);
  auto leaves = group.member(1);
  auto token = stays->barrier(kLabel);
  EXPECT_FALSE(token.test());
  leaves.reset();
  EXPECT_THAT(token.wait(soon()).to_string(), HasSubstr("rank 1"));
}

TEST(InProcessTest, AbortEndsEveryWaitWithItsReason) {
  InProcessGroup group(2);
  auto waits = group.member(0);
  auto other = group.member(1);
  auto token = waits->barrier(kLabel);
  other->abort(Status(ErrorCode::kJobAborted, {.what = "worker/1 died"}));
  EXPECT_EQ(token.wait(soon()).text().what, "worker/1 died");
  EXPECT_EQ(waits->barrier(kLabel).wait(soon()).code(), ErrorCode::kJobAborted);
}

TEST(InProcessTest, DifferentCallsAreRefusedAndNamed) {
  InProcessGroup group(2);
  auto first = group.member(0);
  auto second = group.member(1);
  std::vector<std::byte> bytes(4);
  auto token = first->barrier(kLabel);
  const Status status = second->broadcast(bytes, 0, kLabel).wait(soon());
  EXPECT_EQ(status.code(), ErrorCode::kPrecondition);
  EXPECT_THAT(status.to_string(), HasSubstr("barrier"));
  EXPECT_THAT(status.to_string(), HasSubstr("broadcast of 4 bytes"));
}

TEST(ReductionTest, PartsMustFitTheLayout) {
  const ShardLayout layout(2, 5);
  InProcessGroup group(2);
  auto comm = group.member(0);
  float value = 0;
  const std::vector<const void*> parts(layout.nodes(0).size() + 1, &value);
  EXPECT_EQ(
      comm->all_reduce(layout, ElementType::kFloat32, parts, &value, 1, kLabel).wait(soon()).code(),
      ErrorCode::kInvalidArgument);
  const ShardLayout other(3, 3);
  EXPECT_EQ(comm->all_reduce(other, ElementType::kFloat32, {parts.data(), 1}, &value, 1, kLabel)
                .wait(soon())
                .code(),
            ErrorCode::kInvalidArgument);
}

TEST(SingleTest, SumsItsOwnPartsAndWaitsForNobody) {
  auto comm = single_communicator();
  const ShardLayout layout(1, 6);
  EXPECT_EQ(layout.parts(), 1u);
  const auto parts = contributions<float>(layout, 0, 10);
  std::vector<float> out(10);
  EXPECT_TRUE(
      comm->all_reduce(layout, ElementType::kFloat32, pointers(parts), out.data(), 10, kLabel)
          .test());
  EXPECT_TRUE(same_bits(out, local_sum<float>(6, 10)));
  EXPECT_TRUE(comm->barrier(kLabel).test());
  comm->abort(Status(ErrorCode::kCancelled, {.what = "over"}));
  EXPECT_EQ(comm->barrier(kLabel).wait(soon()).code(), ErrorCode::kCancelled);
}

TEST(ShardLayoutTest, DividesShardsInRankOrder) {
  const ShardLayout layout(3, 8);
  EXPECT_EQ(layout.range(0), (ShardRange{0, 3}));
  EXPECT_EQ(layout.range(2), (ShardRange{6, 8}));
  EXPECT_EQ(layout.nodes(0).size(), 2u);
  EXPECT_EQ(layout.first_part(2), layout.nodes(0).size() + layout.nodes(1).size());
  EXPECT_EQ(layout.sum().inputs(), static_cast<int>(layout.parts()));
  EXPECT_THROW(ShardLayout(3, 2), UsageError);
}

}  // namespace
}  // namespace fleet::transport

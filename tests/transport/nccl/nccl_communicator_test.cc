// Collective operations over NCCL, above a double of the library: what is put on the stream, and
// what becomes of failures.
#include "transport/nccl/nccl_communicator.h"

#include <gmock/gmock.h>

#include "tests/transport/collective/reference.h"
#include "tests/transport/nccl/nccl_jobs.h"

namespace fleet::transport {
namespace {

using ::testing::HasSubstr;
using namespace testing;            // NOLINT: the helpers of this folder
using namespace testing_reference;  // NOLINT

template <class T>
void check_sums(CollectiveCommunicator& comm, int shards, size_t count) {
  const ShardLayout layout(comm.size(), shards);
  const auto expected = sum_of_contributions<T>(layout, count);
  auto parts = contributions<T>(layout, comm.rank(), count);
  const auto sum = [&](T* into) {
    return comm.all_reduce(layout, kType<T>, pointers(parts), into, count, kLabel).wait(soon());
  };
  std::vector<T> out(count);
  ASSERT_EQ(sum(out.data()).to_string(), Status().to_string());
  ASSERT_TRUE(same_bits(out, expected)) << comm.size() << " ranks, " << count;
  const auto ranks = static_cast<size_t>(comm.size());
  const auto rank = static_cast<size_t>(comm.rank());
  std::vector<size_t> counts(ranks, count / ranks);
  counts[0] += count % ranks;
  std::vector<T> piece(counts[rank]);
  const Status status =
      comm.reduce_scatter(layout, kType<T>, pointers(parts), piece.data(), counts, kLabel)
          .wait(soon());
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto begin =
      expected.begin() + static_cast<long>(rank == 0 ? 0 : counts[0] + (rank - 1) * counts[1]);
  ASSERT_TRUE(same_bits(piece, std::vector<T>(begin, begin + static_cast<long>(counts[rank]))));
  ASSERT_TRUE(sum(parts.back().data()).ok());
  ASSERT_TRUE(same_bits(parts.back(), expected)) << "in place";
}

template <class T>
class NcclOrderedSums : public ::testing::Test {};
using Types = ::testing::Types<float, double, int64_t, Float16, BFloat16>;
TYPED_TEST_SUITE(NcclOrderedSums, Types);

TYPED_TEST(NcclOrderedSums, HaveTheBitsOfTheTree) {
  for (const int ranks : {2, 3, 4}) {
    for (const int shards : {ranks, 2 * ranks + 3}) {
      run_ranks(world_of(ranks),
                [&](CollectiveCommunicator& comm) {
                  for (const size_t count : {0, 1, 17, 4097, 20'011}) {
                    check_sums<TypeParam>(comm, shards, count);
                  }
                },
                {.options = {.piece_bytes = 8192}});
    }
  }
}

TEST(NcclFastSums, AreSumsInSomeOrder) {
  run_ranks(world_of(3),
            [](CollectiveCommunicator& comm) {
              constexpr size_t kCount = 999;
              const ShardLayout layout(3, 6);
              const auto expected = sum_of_contributions<double>(layout, kCount);
              const auto parts = contributions<double>(layout, comm.rank(), kCount);
              std::vector<double> out(kCount);
              ASSERT_TRUE(comm.all_reduce(layout, ElementType::kFloat64, pointers(parts),
                                          out.data(), kCount, kLabel)
                              .wait(soon())
                              .ok());
              for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(out[i], expected[i], 1e-9);
              const auto rank = static_cast<size_t>(comm.rank());
              const auto check_piece = [&](const std::vector<size_t>& counts, size_t begin) {
                std::vector<double> piece(counts[rank]);
                ASSERT_TRUE(comm.reduce_scatter(layout, ElementType::kFloat64, pointers(parts),
                                                piece.data(), counts, kLabel)
                                .wait(soon())
                                .ok());
                for (size_t i = 0; i < piece.size(); ++i) {
                  EXPECT_NEAR(piece[i], expected[begin + i], 1e-9);
                }
              };
              check_piece({333, 333, 333}, 333 * rank);
              check_piece({899, 0, 100}, rank == 0 ? 0 : 899);
            },
            {.options = {.ordered = false}});
}

TEST(NcclCommunicator, MovesBytes) {
  run_ranks(world_of(3), [](CollectiveCommunicator& comm) {
    std::vector<std::byte> word(5, static_cast<std::byte>(comm.rank() + 1));
    std::vector<std::byte> all(15);
    ASSERT_TRUE(comm.all_gather(word, all, kLabel).wait(soon()).ok());
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<std::byte>(i / 5 + 1));
    ASSERT_TRUE(comm.broadcast(word, 2, kLabel).wait(soon()).ok());
    EXPECT_EQ(word, std::vector<std::byte>(5, std::byte{3}));
    EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
  });
}

TEST(NcclCommunicator, HasManyOperationsUnderWay) {
  const auto world = world_of(2);
  run_ranks(world, [](CollectiveCommunicator& comm) {
    const ShardLayout layout(2, 2);
    std::vector<std::vector<float>> values;
    std::vector<CollectiveToken> tokens;
    tokens.reserve(20);
    for (size_t i = 0; i < 20; ++i) values.push_back(shard_values<float>(comm.rank(), 100 * i));
    for (auto& own : values) {
      const void* part = own.data();
      tokens.push_back(comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, own.data(),
                                       own.size(), kLabel));
    }
    for (size_t i = tokens.size(); i-- > 0;) {
      ASSERT_TRUE(tokens[i].wait(soon()).ok());
      EXPECT_TRUE(same_bits(values[i], local_sum<float>(2, values[i].size())));
    }
  });
  EXPECT_EQ(world->destroyed(), 2);
  EXPECT_EQ(world->aborts(), 0);
}

TEST(NcclCommunicator, AnOrderedSumSendsTheBytesOfARing) {
  const auto world = world_of(4);
  constexpr size_t kCount = 64 * 1024;
  run_ranks(world, [](CollectiveCommunicator& comm) {
    const ShardLayout layout(4, 4);
    std::vector<float> values(kCount, 1.0F);
    const void* part = values.data();
    ASSERT_TRUE(
        comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), kCount, kLabel)
            .wait(soon())
            .ok());
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(world->bytes_sent(rank), 2 * 3 * kCount * sizeof(float) / 4);
  }
}

// ---- what goes wrong

TEST(NcclFailures, ALateStartIsWaitedFor) {
  const auto world = world_of(2);
  world->delay_start(200);
  run_ranks(world, [](CollectiveCommunicator& comm) {
    EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
  });
}

TEST(NcclFailures, ARankThatNeverComesToTheStartIsToldAtTheDeadline) {
  const auto world = world_of(2);
  const TimePoint deadline = soon(std::chrono::milliseconds(100));
  const auto made = connect(world, 0, {}, deadline);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), ErrorCode::kPeerLost);
  EXPECT_THAT(made.status().text().where, HasSubstr("start of NCCL"));
  EXPECT_GE(steady_clock().now(), deadline);
  EXPECT_EQ(world->aborts(), 1);
}

TEST(NcclFailures, ARankThatDoesNotComeEndsTheWaitAndTheCommunicator) {
  const auto world = world_of(2);
  run_ranks(world, [](CollectiveCommunicator& comm) {
    if (comm.rank() == 1) return;  // leaves
    std::vector<float> values(10);
    const ShardLayout layout(2, 2);
    const void* part = values.data();
    const auto sum = [&] {
      return comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), 10, kLabel)
          .wait(soon(std::chrono::milliseconds(200)));
    };
    const Status status = sum();
    EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(status.text().where, HasSubstr("rank 0, all_reduce of test, step 7"));
    const TimePoint before = steady_clock().now();
    EXPECT_EQ(sum().to_string(), status.to_string());
    EXPECT_LT(steady_clock().now() - before, std::chrono::milliseconds(150));
  });
  EXPECT_EQ(world->aborts(), 1);
}

TEST(NcclFailures, AnErrorThatTheLibraryFindsLaterEndsTheWait) {
  const auto world = world_of(2);
  run_ranks(world, [&](CollectiveCommunicator& comm) {
    if (comm.rank() == 1) return;
    auto token = comm.barrier(kLabel);
    world->fail(0, NcclResult::kRemoteError);
    const Status status = token.wait(soon());
    EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
    EXPECT_EQ(status.text().got, "ncclRemoteError");
    EXPECT_THAT(status.text().what, HasSubstr("the double says 6"));
  });
}

TEST(NcclFailures, RanksThatCallDifferentOperationsAreTold) {
  const auto world = world_of(2);
  run_ranks(world, [](CollectiveCommunicator& comm) {
    std::vector<std::byte> mine(comm.rank() == 0 ? 8 : 16);
    std::vector<std::byte> all(mine.size() * 2);
    const Status status = comm.all_gather(mine, all, kLabel).wait(soon(std::chrono::seconds(5)));
    EXPECT_EQ(status.code(), ErrorCode::kInternal);
    EXPECT_EQ(status.text().got, "ncclInvalidUsage");
  });
}

TEST(NcclFailures, ACallThatIsRefusedLeavesTheGroup) {
  const auto world = world_of(2);
  run_ranks(world, [&](CollectiveCommunicator& comm) {
    if (comm.rank() == 1) return;
    world->refuse_send(0);
    std::vector<float> values(10);
    const ShardLayout layout(2, 2);
    const void* part = values.data();
    const Status status =
        comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), 10, kLabel)
            .wait(soon());
    EXPECT_EQ(status.text().got, "ncclInvalidArgument");
    EXPECT_THAT(status.text().where, HasSubstr("ncclSend, rank 0"));
  });
  EXPECT_EQ(world->aborts(), 1);
}

TEST(NcclFailures, AnAbortOfAnotherThreadEndsTheWait) {
  const auto world = world_of(2);
  run_ranks(world, [](CollectiveCommunicator& comm) {
    if (comm.rank() == 1) return;
    auto token = comm.barrier(kLabel);
    const std::jthread other([&] {
      while (comm.awaited().empty()) std::this_thread::yield();
      EXPECT_THAT(comm.awaited(), HasSubstr("operation 0, barrier"));
      comm.abort(
          Status(ErrorCode::kJobAborted,
                 {.what = "rank 1 was killed", .where = {}, .expected = {}, .got = {}, .fix = {}}));
    });
    const Status status = token.wait(soon());
    EXPECT_EQ(status.code(), ErrorCode::kJobAborted);
    EXPECT_EQ(status.text().what, "rank 1 was killed");
    EXPECT_TRUE(comm.awaited().empty());
  });
}

// One rank, whose device does what `compute` does before each operation.
Result<std::unique_ptr<CollectiveCommunicator>> alone_with(const std::function<void()>& compute) {
  std::vector<NcclRing> rings;
  rings.push_back({.queue = std::make_unique<FakeQueue>(host_allocator(), nullptr, compute),
                   .id = id_of("alone")});
  return make_nccl_communicator(
      std::make_shared<FakeNccl>(world_of(1), 0), std::make_unique<FakeQueue>(), std::move(rings),
      {.rank = 0, .size = 1}, soon(), {.end_limit = std::chrono::milliseconds(50)});
}

TEST(NcclCommunicator, AnOperationBeginsWhenTheDeviceHasComeToIt) {
  std::atomic<bool> computes = true;
  const auto comm = alone_with([&] {
                      while (computes) std::this_thread::yield();
                    }).value();
  auto token = comm->barrier(kLabel);
  EXPECT_FALSE(token.begun());
  EXPECT_FALSE(token.test());
  computes = false;
  EXPECT_TRUE(token.wait(soon()).ok());
  EXPECT_TRUE(token.begun());
}

TEST(NcclCommunicator, AnOperationBehindOneThatWaitsForOthersHasBegun) {
  run_ranks(world_of(2), [](CollectiveCommunicator& comm) {
    if (comm.rank() == 1) return;
    auto first = comm.barrier(kLabel);
    auto second = comm.barrier(kLabel);
    while (!first.begun()) std::this_thread::yield();
    EXPECT_TRUE(second.begun());
    EXPECT_FALSE(second.test());
    comm.abort(Status(ErrorCode::kJobAborted, {.what = "rank 1 left"}));
    EXPECT_FALSE(second.wait(soon()).ok());
  });
}

TEST(NcclFailures, ADeviceThatStandsStillIsNotWaitedFor) {
  static std::atomic<bool> stands = true;
  {
    const auto comm = alone_with([] {
                        while (stands) std::this_thread::yield();
                      }).value();
    auto token = comm->barrier(kLabel);
    EXPECT_EQ(token.wait(soon(std::chrono::milliseconds(20))).code(), ErrorCode::kPeerLost);
  }
  stands = false;
}

TEST(NcclFailures, AReductionMustFitItsLayout) {
  run_ranks(world_of(2), [](CollectiveCommunicator& comm) {
    const Status status =
        comm.all_reduce(ShardLayout(2, 2), ElementType::kFloat32, {}, nullptr, 0, kLabel)
            .wait(soon());
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
  });
}

}  // namespace
}  // namespace fleet::transport

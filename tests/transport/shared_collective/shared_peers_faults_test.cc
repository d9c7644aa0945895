// What goes wrong between ranks that share memory: other calls, aborts, ranks that are killed or
// stopped, and arenas with anything in them.
#include <csignal>
#include <gmock/gmock.h>
#include <latch>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/transport/shared_collective/shared_ranks.h"

namespace fleet::transport {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the helpers of this folder
using std::chrono::milliseconds;

TEST(SharedFaults, DifferentCallsNameBothSides) {
  run_shared_ranks(3, [](CollectiveCommunicator& comm) {
    const ShardLayout layout(3, 3);
    std::vector<float> values(10);
    const void* part = values.data();
    const size_t count = comm.rank() == 2 ? 9 : 10;
    const Status status =
        comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), count, kLabel)
            .wait(soon());
    EXPECT_EQ(status.code(), ErrorCode::kPrecondition);
    EXPECT_THAT(status.text().got, HasSubstr("all_reduce of 10 float32 at rank"));
    EXPECT_THAT(status.text().got, HasSubstr("all_reduce of 9 float32 at rank 2"));
  });
}

TEST(SharedFaults, AnAbortOfAnotherThreadWakesARankThatSleeps) {
  SharedGroup group(2);
  const auto waits = make_communicator(group.peers(0));
  auto token = waits->barrier(kLabel);
  TimePoint aborted{};
  std::jthread other([&] {
    std::this_thread::sleep_for(milliseconds(300));
    aborted = steady_clock().now();
    waits->abort(Status(ErrorCode::kPeerLost, {.what = "worker/1 died"}));
  });
  EXPECT_EQ(token.wait(soon()).text().what, "worker/1 died");
  other.join();
  EXPECT_LT(steady_clock().now() - aborted, milliseconds(500));
}

TEST(SharedFaults, WhoFailsTellsTheOthersWhy) {
  std::latch both_met(2);
  run_shared_ranks(2, [&](CollectiveCommunicator& comm) {
    EXPECT_TRUE(comm.barrier(kLabel).wait(soon()).ok());
    both_met.arrive_and_wait();
    if (comm.rank() == 0)
      return comm.abort(Status(ErrorCode::kPeerLost, {.what = "worker/7 died"}));
    const Status status = comm.barrier(kLabel).wait(soon());
    EXPECT_EQ(status.text().what, "worker/7 died");
    EXPECT_THAT(status.text().where, HasSubstr("as rank 0 says"));
  });
}

TEST(SharedFaults, ARankThatHasLeftIsNamed) {
  SharedGroup group(2);
  const auto stays = make_communicator(group.peers(0));
  group.peers(1).reset();
  const Status status = stays->barrier(kLabel).wait(soon());
  EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
  EXPECT_THAT(status.text().what, HasSubstr("rank 1 has left"));
}

// Rank 1 is a process that is hit by `signal` between two barriers.
Status barrier_with_a_rank_that_gets(int signal) {
  SharedGroup group(2);
  const pid_t child = fork();
  if (child == 0) {
    const auto comm = make_communicator(group.peers(1));
    (void)comm->barrier(kLabel).wait(soon());
    raise(signal);
    _exit(0);
  }
  const auto comm = make_communicator(group.peers(0));
  EXPECT_TRUE(comm->barrier(kLabel).wait(soon()).ok());
  Status status = comm->barrier(kLabel).wait(steady_clock().now() + milliseconds(800));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return status;
}

TEST(SharedFaults, ARankThatIsKilledOrStoppedIsNamedAtTheDeadline) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const Status status = barrier_with_a_rank_that_gets(signal);
    EXPECT_EQ(status.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(status.text().what, HasSubstr("rank 1 did not come"));
  }
}

// Whatever rank 1 writes, rank 0 ends with a status.
TEST(SharedFaults, AnythingInAnArenaEndsInAnError) {
  std::minstd_rand random(1);
  for (int round = 0; round < 300; ++round) {
    SharedGroup group(2);
    const Arena& hostile = *group.own[1];
    const auto comm = make_communicator(group.peers(0));
    std::vector<std::byte> word(100);
    std::vector<std::byte> all(200);
    auto token = comm->all_gather(word, all, kLabel);
    std::byte* const slots = hostile.slot(0, 0);
    for (size_t i = 0; i < 64; ++i) slots[i] = static_cast<std::byte>(random());
    if (round % 3 == 0)
      slots[offsetof(ArenaLayout::SlotHeader, frame)] = static_cast<std::byte>(round % 5);
    ArenaLayout::Line& line = hostile.line(0);
    if (round % 2 == 0) line.taken.store(random());
    if (round % 7 == 0) line.returned.store(random());
    if (round % 5 == 0) hostile.state().failure_bytes.store(static_cast<uint32_t>(random()));
    line.put.store(round % 4 == 0 ? random() : 1 + random() % ArenaLayout::kSlots);
    EXPECT_FALSE(token.wait(steady_clock().now() + milliseconds(20)).ok()) << "round " << round;
  }
}

}  // namespace
}  // namespace fleet::transport

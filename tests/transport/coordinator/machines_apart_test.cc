// Members of other machines: how long they may be away, and what proves that they have ended.
#include <gtest/gtest.h>

#include "base/archive.h"
#include "tests/transport/coordinator/coordinator_job.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

SimFaults machines_apart() {
  SimFaults faults;
  faults.one_machine = false;
  return faults;
}

TEST(Coordinator, AMemberOfAnotherMachineHasTimeToComeBack) {
  Job job(18, machines_apart());
  job.start();
  job.world.partition(job.home, *job.worker(1).loop);
  job.world.cut(job.home, *job.worker(1).loop);
  job.world.run_for(2s);
  job.world.heal(job.home, *job.worker(1).loop);
  job.world.run_for(20s);
  EXPECT_TRUE(job.verdicts.empty());
  EXPECT_EQ(job.present(), kWorkers + kServers);
}

TEST(Coordinator, AMemberOfAnotherMachineThatStaysAwayIsLost) {
  Job job(19, machines_apart());
  job.start();
  const TimePoint killed = job.world.now();
  job.world.kill(*job.worker(1).loop);
  ASSERT_TRUE(job.run([&] { return job.all_know({kWorker1}); }, 60s));
  EXPECT_GE(job.world.now() - killed, 3s);
  EXPECT_LE(job.world.now() - killed, 3100ms);
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
}

// A launcher of another machine tells of a process's death.
class LauncherOf {
 public:
  explicit LauncherOf(Job& job) : job_(job), loop_(job.world.add_loop("launcher")) {}
  Status tell(const Verdict& verdict) {
    ChannelOptions options;
    options.endpoint = Endpoint{"127.0.0.1", kServerPort};
    options.hello.job_id = hello_of(PeerRole::kServer, 0).job_id;
    options.hello.member = {PeerRole::kLauncher, 0};
    options.hello.lane = LaneKind::kControl;
    options.secret = secret();
    options.random = seeded_random(job_.world);
    channel_ = std::make_unique<Channel>(loop_, job_.world, options);
    channel_->start();
    PendingRequests pending;
    Request request = simple(Verb::kAbort, pending.track());
    request.frames.back().control = encode(verdict);
    channel_->submit(std::move(request));
    EXPECT_TRUE(job_.run([&] { return pending.done(); }, 1s));
    return pending.status();
  }

 private:
  Job& job_;
  SimLoop& loop_;
  std::unique_ptr<Channel> channel_;
};

Verdict death_of(MemberId member) {
  return {member, Phase::kStarting, 0, ErrorCode::kPeerLost, "it was killed by SIGKILL"};
}

TEST(Coordinator, ALauncherProvesADeathOnAnotherMachine) {
  Job job(21, machines_apart());
  job.start();
  job.worker(1).client->set_phase(Phase::kComputing, 17);
  job.world.run_for(3s);
  LauncherOf launcher(job);
  const TimePoint killed = job.world.now();
  job.world.kill(*job.worker(1).loop);
  EXPECT_TRUE(launcher.tell(death_of(kWorker1)).ok());
  ASSERT_TRUE(job.run([&] { return job.all_know({kWorker1}); }, 60s));
  EXPECT_LE(job.world.now() - killed, 350ms);
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
  EXPECT_EQ(job.worker(0).verdict->phase, Phase::kComputing);
  EXPECT_EQ(job.worker(0).verdict->step, 17U);
  EXPECT_EQ(job.worker(0).verdict->reason, "it was killed by SIGKILL");
}

TEST(Coordinator, ALauncherProvesTheDeathOfAMemberThatNeverJoined) {
  Job job(22, machines_apart());
  ASSERT_TRUE(job.server->listen().ok());
  job.coordinator->start();
  for (auto& [id, member] : job.members) {
    if (id != kWorker1) member.client->start();
  }
  job.world.run_for(1s);
  EXPECT_TRUE(LauncherOf(job).tell(death_of(kWorker1)).ok());
  ASSERT_TRUE(job.run([&] { return job.all_know({kWorker1}); }, 1s));
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
}

TEST(Coordinator, WhatADeadMemberSaidItselfCountsMoreThanItsLauncher) {
  Job job(23, machines_apart());
  job.start();
  job.worker(1).client->complete_async([](const Status&) {});
  job.world.run_for(1s);
  job.world.kill(*job.worker(1).loop);
  LauncherOf launcher(job);
  EXPECT_TRUE(launcher.tell(death_of(kWorker1)).ok());
  job.world.run_for(5s);
  EXPECT_TRUE(job.verdicts.empty());
  // A member that is none, and one that is alive and comes back.
  EXPECT_TRUE(launcher.tell(death_of({PeerRole::kWorker, 99})).ok());
  EXPECT_TRUE(launcher.tell(death_of({PeerRole::kLauncher, 0})).ok());
  job.world.run_for(5s);
  EXPECT_TRUE(job.verdicts.empty());
}

TEST(Coordinator, ARefusedConnectionProvesTheCoordinatorsDeath) {
  Job job(20, machines_apart());
  job.start();
  const TimePoint killed = job.world.now();
  job.world.kill(job.home);
  const MemberId home{PeerRole::kServer, 0};
  ASSERT_TRUE(job.run([&] { return job.all_know({home}); }, 60s));
  EXPECT_LE(job.world.now() - killed, 300ms);
  EXPECT_EQ(job.worker(0).verdict->culprit, home);
}

}  // namespace
}  // namespace fleet::transport

// The coordinator and its members: who is lost, silent or standing still, and where they meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/coordinator/coordinator_job.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

TEST(Coordinator, AKilledMemberIsNamedToAllWithinMilliseconds) {
  Job job(1);
  job.start();
  job.worker(1).client->set_phase(Phase::kComputing, 17);
  job.world.run_for(3s);
  const TimePoint killed = job.world.now();
  job.world.kill(*job.worker(1).loop);
  ASSERT_TRUE(job.run([&] { return job.all_know({kWorker1}); }, 60s));
  EXPECT_LE(job.world.now() - killed, 300ms);
  for (auto& [id, member] : job.members) {
    if (id == kWorker1) continue;
    EXPECT_EQ(member.verdict->culprit, kWorker1);
    EXPECT_EQ(member.verdict->phase, Phase::kComputing);
    EXPECT_EQ(member.verdict->step, 17U);
    EXPECT_EQ(member.verdict->code, ErrorCode::kPeerLost);
  }
  EXPECT_EQ(job.verdicts.size(), 1U);
}

TEST(Coordinator, AStoppedMemberIsFoundByItsSilence) {
  Job job(2);
  job.start();
  job.peer(1).client->set_phase(Phase::kServing, 4);
  job.world.run_for(3s);
  const TimePoint stopped = job.world.now();
  job.world.pause(*job.peer(1).loop);
  ASSERT_TRUE(job.run([&] { return job.all_know({{PeerRole::kServer, 1}}); }, 60s));
  EXPECT_GE(job.world.now() - stopped, 9s);
  EXPECT_LE(job.world.now() - stopped, 13s);
  EXPECT_EQ(job.worker(0).verdict->culprit, (MemberId{PeerRole::kServer, 1}));
  EXPECT_EQ(job.worker(0).verdict->code, ErrorCode::kPeerSilent);
  EXPECT_EQ(job.worker(0).verdict->step, 4U);
}

TEST(Coordinator, AStoppedCoordinatorIsNamedByEveryMember) {
  Job job(3);
  job.start();
  const TimePoint stopped = job.world.now();
  job.world.pause(job.home);
  ASSERT_TRUE(job.run([&] { return job.all_know({{PeerRole::kServer, 0}}); }, 60s));
  EXPECT_LE(job.world.now() - stopped, 13s);
  for (uint32_t i = 0; i < kWorkers; ++i) {
    EXPECT_EQ(job.worker(i).verdict->culprit, (MemberId{PeerRole::kServer, 0}));
    EXPECT_EQ(job.worker(i).verdict->code, ErrorCode::kPeerSilent);
  }
}

TEST(Coordinator, AKilledCoordinatorIsNamedWithinMilliseconds) {
  Job job(4);
  job.start();
  const TimePoint killed = job.world.now();
  job.world.kill(job.home);
  ASSERT_TRUE(job.run([&] { return job.all_know({{PeerRole::kServer, 0}}); }, 60s));
  EXPECT_LE(job.world.now() - killed, 300ms);
  EXPECT_EQ(job.peer(1).verdict->culprit, (MemberId{PeerRole::kServer, 0}));
  EXPECT_EQ(job.peer(1).verdict->code, ErrorCode::kPeerLost);
}

TEST(Coordinator, ABlackHoledLinkIsFoundOnBothSides) {
  Job job(5);
  job.start();
  job.world.partition(job.home, *job.worker(1).loop);
  ASSERT_TRUE(job.run([&] { return job.all_know(); }, 60s));
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
  EXPECT_EQ(job.worker(1).verdict->culprit, (MemberId{PeerRole::kServer, 0}));
}

TEST(Coordinator, ACutLinkIsNoLoss) {
  Job job(6);
  job.start();
  for (int round = 0; round < 20; ++round) {
    job.world.cut(job.home, *job.worker(1).loop);
    job.world.run_for(500ms);
  }
  EXPECT_TRUE(job.verdicts.empty());
  EXPECT_EQ(job.present(), kWorkers + kServers);
}

TEST(Coordinator, AStopOfTheCoordinatorItselfIsNotBlamedOnOthers) {
  Job job(7);
  job.start();
  job.world.pause(job.home);
  job.world.run_for(5s);
  job.world.resume(job.home);
  job.world.run_for(30s);
  EXPECT_TRUE(job.verdicts.empty());
}

TEST(Coordinator, AnAbortReachesEveryMemberWithItsReason) {
  Job job(8);
  job.start();
  job.worker(2).client->abort_async(Verdict{{PeerRole::kWorker, 2},
                                            Phase::kComputing,
                                            9,
                                            ErrorCode::kNumerics,
                                            "a loss is not a number"});
  ASSERT_TRUE(job.run([&] { return job.all_know(); }, 100ms));
  EXPECT_EQ(job.worker(0).verdict->reason, "a loss is not a number");
  EXPECT_EQ(job.worker(0).verdict->code, ErrorCode::kNumerics);
  EXPECT_EQ(job.worker(0).verdict->to_status().text().what,
            "worker 2 ended the job in phase computing at step 9: a loss is not a number");
}

TEST(Coordinator, OnlyTheFirstAbortCounts) {
  Job job(9);
  job.start();
  job.worker(0).client->abort_async(
      Verdict{{PeerRole::kWorker, 0}, Phase::kComputing, 1, ErrorCode::kInput, "first"});
  job.run([&] { return !job.verdicts.empty(); }, 1s);
  job.worker(1).client->abort_async(
      Verdict{{PeerRole::kWorker, 1}, Phase::kComputing, 1, ErrorCode::kInput, "second"});
  job.world.run_for(5s);
  EXPECT_EQ(job.verdicts.size(), 1U);
  for (auto& [id, member] : job.members) EXPECT_EQ(member.verdict->reason, "first");
}

TEST(Coordinator, AStallIsReportedAndThenEndsTheJob) {
  Job job(10);
  job.start();
  // Worker 1 computes for ever, the others wait for it.
  job.worker(0).client->set_phase(Phase::kReceiving, 5);
  job.worker(2).client->set_phase(Phase::kReceiving, 5);
  job.worker(1).client->set_phase(Phase::kComputing, 5);
  job.peer(0).client->set_phase(Phase::kServing, 5);
  job.peer(1).client->set_phase(Phase::kServing, 5);
  std::optional<Stall> stall;
  job.coordinator->set_on_stall([&](const auto& told) { stall = told; });
  EXPECT_FALSE(job.run([&] { return job.logged("does not advance"); }, 7s));
  EXPECT_FALSE(stall.has_value());
  EXPECT_TRUE(job.run([&] { return job.logged("does not advance"); }, 5s));
  EXPECT_TRUE(job.logged("worker 1"));
  EXPECT_TRUE(job.logged("waiting=\"worker 0, worker 2\""));
  ASSERT_TRUE(stall.has_value());
  EXPECT_THAT(stall->to_line(), ::testing::MatchesRegex("stall who=worker/1 phase=computing step=5 "
                                                        "for_s=[89] waiting=worker/0,worker/2"));
  const auto reports = [&] {
    return std::count_if(job.lines.begin(), job.lines.end(), [](const std::string& line) {
      return line.find("does not advance") != std::string::npos;
    });
  };
  job.world.run_for(300s);
  EXPECT_NEAR(static_cast<double>(reports()), 38, 1);
  EXPECT_TRUE(job.verdicts.empty());
  ASSERT_TRUE(job.run([&] { return job.all_know(); }, 1600s));
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
  EXPECT_EQ(job.worker(0).verdict->code, ErrorCode::kPeerStalled);
}

TEST(Coordinator, AStallThatIsOverIsToldAsNone) {
  Job job(13);
  std::vector<std::optional<Stall>> told;
  job.coordinator->set_on_stall([&](const auto& stall) { told.push_back(stall); });
  job.start();
  job.worker(1).client->set_phase(Phase::kComputing, 5);
  for (uint32_t i : {0U, 1U}) job.peer(i).client->set_phase(Phase::kServing, 5);
  ASSERT_TRUE(job.run([&] { return !told.empty(); }, 20s));
  EXPECT_TRUE(told.front().has_value());
  for (uint32_t i = 0; i < kWorkers; ++i) job.worker(i).client->set_phase(Phase::kComputing, 6);
  ASSERT_TRUE(job.run([&] { return !told.back().has_value(); }, 5s));
  const size_t count = told.size();
  job.world.run_for(3s);
  EXPECT_EQ(told.size(), count);
}

TEST(Coordinator, AStallDeadlineBelowTheReportCounts) {
  Job job(14, {}, {.stall_deadline = 3s});
  job.start();
  job.worker(1).client->set_phase(Phase::kComputing, 5);
  for (uint32_t i : {0U, 2U}) job.worker(i).client->set_phase(Phase::kBarrier, 5);
  for (uint32_t i : {0U, 1U}) job.peer(i).client->set_phase(Phase::kServing, 5);
  ASSERT_TRUE(job.run([&] { return job.all_know(); }, 6s));
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
}

TEST(Coordinator, AMemberThatHasNotJoinedIsNamedByThen) {
  Job job(15);
  ASSERT_TRUE(job.server->listen().ok());
  job.coordinator->start();
  for (auto& [id, member] : job.members) {
    if (id == kWorker1) continue;
    member.client->set_phase(id.role == PeerRole::kWorker ? Phase::kConnecting : Phase::kServing,
                             1);
    member.client->start();
  }
  ASSERT_TRUE(job.run([&] { return job.logged("has not joined who=\"worker 1\""); }, 13s));
  EXPECT_TRUE(job.verdicts.empty());
}

TEST(Coordinator, WhoAdvancesIsNeverStalled) {
  Job job(11);
  job.start();
  job.worker(1).client->set_phase(Phase::kLoading, 0);
  for (uint32_t i : {0U, 1U}) job.peer(i).client->set_phase(Phase::kServing, 0);
  for (int i = 0; i < 400; ++i) {
    job.worker(1).client->made_progress();
    for (uint32_t other : {0U, 2U}) job.worker(other).client->set_phase(Phase::kBarrier, 0);
    job.world.run_for(10s);
  }
  EXPECT_TRUE(job.verdicts.empty());
}

TEST(Coordinator, WhenAllWaitTheOneFurthestBehindIsNamed) {
  Job job(12);
  job.start();
  for (uint32_t i = 0; i < kWorkers; ++i) {
    job.worker(i).client->set_phase(Phase::kReceiving, i == 1 ? 7 : 8);
  }
  job.peer(0).client->set_phase(Phase::kServing, 0);
  job.peer(1).client->set_phase(Phase::kServing, 0);
  ASSERT_TRUE(job.run([&] { return job.all_know(); }, 1900s));
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
}

TEST(Coordinator, AMemberThatNeverComesIsNamed) {
  Job job(13);
  ASSERT_TRUE(job.server->listen().ok());
  job.coordinator->start();
  for (auto& [id, member] : job.members) {
    if (id != kWorker1) member.client->start();
  }
  EXPECT_FALSE(job.run([&] { return job.all_know({kWorker1}); }, 170s));
  ASSERT_TRUE(job.run([&] { return job.all_know({kWorker1}); }, 20s));
  EXPECT_EQ(job.worker(0).verdict->culprit, kWorker1);
  EXPECT_NE(job.worker(0).verdict->reason.find("did not join"), std::string::npos);
}

TEST(Coordinator, WithoutACoordinatorAMemberGivesUpAtTheDeadline) {
  Job job(14);
  job.worker(0).client->start();
  EXPECT_FALSE(job.run([&] { return job.worker(0).verdict.has_value(); }, 170s));
  ASSERT_TRUE(job.run([&] { return job.worker(0).verdict.has_value(); }, 30s));
  EXPECT_EQ(job.worker(0).verdict->culprit, (MemberId{PeerRole::kServer, 0}));
  EXPECT_EQ(job.worker(0).verdict->code, ErrorCode::kDeadline);
}

TEST(Coordinator, ASecondProcessWithTheSameIndexIsRefused) {
  Job job(15);
  job.start();
  CoordinatorClientOptions options;
  options.endpoint = Endpoint{"127.0.0.1", kServerPort};
  options.coordinator = MemberId{PeerRole::kServer, 0};
  options.hello = hello_of(PeerRole::kWorker, 1, kWorkers, kServers);
  options.hello.incarnation = 5;
  options.secret = secret();
  CoordinatorClient second(job.world.add_loop("second"), job.world, options, quiet());
  std::optional<Verdict> verdict;
  second.set_on_verdict([&](const Verdict& v) { verdict = v; });
  second.start();
  ASSERT_TRUE(job.run([&] { return verdict.has_value(); }, 1s));
  EXPECT_EQ(verdict->code, ErrorCode::kHandshakeRefused);
  EXPECT_NE(verdict->reason.find("worker 1"), std::string::npos);
  job.world.run_for(20s);
  EXPECT_TRUE(job.verdicts.empty());
}

TEST(Coordinator, ADataLaneOfASecondProcessIsRefused) {
  Job job(17);
  job.start();
  ClientOptions options;
  options.servers = {Endpoint{"127.0.0.1", kServerPort}};
  options.hello = hello_of(PeerRole::kWorker, 1, kWorkers, kServers);
  options.hello.incarnation = 5;
  options.secret = secret();
  Client second(job.world.add_loop("second"), job.world, options, quiet());
  second.start();
  PendingRequests pending;
  second.submit(0, 0, simple(Verb::kGet, pending.track()));
  ASSERT_TRUE(job.run([&] { return pending.done(); }, 1s));
  EXPECT_EQ(pending.status().code(), ErrorCode::kHandshakeRefused);
  EXPECT_NE(pending.status().text().what.find("worker 1"), std::string::npos);
  job.world.run_for(20s);
  EXPECT_TRUE(job.verdicts.empty());
}

TEST(Coordinator, OrderlyLeavingIsNoLossAndServersLearnWhenWorkersAreDone) {
  Job job(16);
  job.start();
  int acknowledged = 0;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    EXPECT_FALSE(job.peer(1).workers_complete);
    job.worker(i).client->complete_async([&](const Status& s) { acknowledged += s.ok() ? 1 : 0; });
    job.world.run_for(1s);
  }
  EXPECT_EQ(acknowledged, 3);
  EXPECT_TRUE(job.peer(0).workers_complete);
  EXPECT_TRUE(job.peer(1).workers_complete);
  EXPECT_EQ(job.all_complete, 0);
  job.peer(1).client->complete_async(nullptr);
  job.peer(0).client->complete_async(nullptr);
  job.world.run_for(20s);
  EXPECT_EQ(job.all_complete, 1);
  EXPECT_TRUE(job.verdicts.empty());
}

// ---- meetings

TEST(Meeting, ABarrierOpensWhenTheLastMemberComes) {
  Job job(20);
  job.start();
  int passed = 0;
  const auto come = [&](uint32_t index) {
    job.worker(index).client->reduce_async(
        Group::kWorkers, "b", ReduceOp::kSum, std::vector<int64_t>(), 0s,
        [&](const Result<ReduceValues>& result) { passed += result.ok() ? 1 : 0; });
  };
  come(0);
  come(2);
  job.world.run_for(20s);
  EXPECT_EQ(passed, 0);
  ASSERT_EQ(job.coordinator->waits().size(), 1U);
  EXPECT_NE(job.coordinator->waits()[0].find("worker 0, worker 2 wait for worker 1"),
            std::string::npos);
  come(1);
  ASSERT_TRUE(job.run([&] { return passed == 3; }, 100ms));
}

// One that waits when another asks for a checkpoint, and one that comes before it has seen to that.
TEST(Meeting, GivesWayToACheckpoint) {
  Job job(27);
  job.start();
  int sent_back = 0;
  int passed = 0;
  const auto come = [&](uint32_t index, uint64_t saves) {
    job.worker(index).client->reduce_async(
        Group::kWorkers, "b", ReduceOp::kSum, std::vector<int64_t>(), 0s,
        [&](const Result<ReduceValues>& result) {
          passed += result.ok() ? 1 : 0;
          sent_back += is_save_first(result.status()) ? 1 : 0;
        },
        saves);
  };
  come(0, 0);
  job.world.run_for(1s);
  job.worker(1).client->ask_to_save_async();
  ASSERT_TRUE(job.run([&] { return sent_back == 1; }, 100ms));
  EXPECT_TRUE(job.coordinator->waits().empty());
  come(2, 0);
  ASSERT_TRUE(job.run([&] { return sent_back == 2; }, 100ms));
  for (const uint32_t index : {0U, 1U, 2U}) come(index, 1);
  ASSERT_TRUE(job.run([&] { return passed == 3; }, 100ms));
  EXPECT_EQ(sent_back, 2);
}

TEST(Meeting, ReducesEveryTypeAndOperation) {
  Job job(21);
  job.start();
  const auto meet = [&](ReduceOp op, const std::function<ReduceValues(uint32_t)>& of) {
    std::vector<ReduceValues> results;
    for (uint32_t i = 0; i < kWorkers; ++i) {
      job.worker(i).client->reduce_async(
          Group::kWorkers, "r", op, of(i), 0s,
          [&](Result<ReduceValues> result) { results.push_back(std::move(result.value())); });
    }
    job.run([&] { return results.size() == kWorkers; }, 1s);
    EXPECT_EQ(results.size(), kWorkers);
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
    return results[0];
  };
  using Ints = std::vector<int64_t>;
  using Doubles = std::vector<double>;
  using Texts = std::vector<std::string>;
  const auto ints = [](uint32_t i) { return Ints{i + 1, -static_cast<int64_t>(i)}; };
  EXPECT_EQ(std::get<Ints>(meet(ReduceOp::kSum, ints)), (Ints{6, -3}));
  EXPECT_EQ(std::get<Ints>(meet(ReduceOp::kMin, ints)), (Ints{1, -2}));
  EXPECT_EQ(std::get<Ints>(meet(ReduceOp::kMax, ints)), (Ints{3, 0}));
  const auto doubles = [](uint32_t i) { return Doubles{0.1 * (i + 1)}; };
  EXPECT_EQ(std::get<Doubles>(meet(ReduceOp::kSum, doubles)), (Doubles{(0.1 + 0.2) + 0.1 * 3}));
  const auto texts = [](uint32_t i) { return Texts{str_cat("t", i)}; };
  EXPECT_EQ(std::get<Texts>(meet(ReduceOp::kGather, texts)), (Texts{"t0", "t1", "t2"}));
}

TEST(Meeting, ADeadlineNamesWhoIsMissing) {
  Job job(22);
  job.start();
  job.worker(1).client->set_phase(Phase::kComputing, 3);
  job.world.run_for(2s);
  std::vector<Status> ends;
  for (uint32_t i : {0U, 2U}) {
    job.worker(i).client->reduce_async(
        Group::kWorkers, "b", ReduceOp::kSum, std::vector<int64_t>(), 5s,
        [&](const Result<ReduceValues>& result) { ends.push_back(result.status()); });
  }
  ASSERT_TRUE(job.run([&] { return ends.size() == 2; }, 6s));
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), ErrorCode::kDeadline);
    EXPECT_EQ(end.text().got, "missing: worker 1 (computing, step 3)");
  }
}

TEST(Meeting, MembersThatAskForDifferentThingsAreTold) {
  Job job(23);
  job.start();
  std::vector<Status> ends;
  for (uint32_t i = 0; i < kWorkers; ++i) {
    job.worker(i).client->reduce_async(
        Group::kWorkers, "r", ReduceOp::kSum, std::vector<int64_t>(i == 2 ? 5 : 4), 0s,
        [&](const Result<ReduceValues>& result) { ends.push_back(result.status()); });
  }
  ASSERT_TRUE(job.run([&] { return ends.size() == kWorkers; }, 1s));
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), ErrorCode::kPrecondition) << end.to_string();
    EXPECT_NE(end.to_string().find("sum of 5 integers"), std::string::npos);
    EXPECT_NE(end.to_string().find("sum of 4 integers"), std::string::npos);
  }
}

TEST(Meeting, AVerdictEndsTheWait) {
  Job job(24);
  job.start();
  Status end;
  job.worker(0).client->reduce_async(
      Group::kWorkers, "b", ReduceOp::kSum, std::vector<int64_t>(), 0s,
      [&](const Result<ReduceValues>& result) { end = result.status(); });
  job.world.run_for(1s);
  job.world.kill(*job.worker(1).loop);
  ASSERT_TRUE(job.run([&] { return !end.ok(); }, 1s));
  EXPECT_EQ(end.code(), ErrorCode::kPeerLost);
  EXPECT_NE(end.to_string().find("worker 1"), std::string::npos);
}

TEST(Meeting, WhoHasCompletedIsNotAwaited) {
  Job job(25);
  job.start();
  Status end;
  job.worker(0).client->reduce_async(
      Group::kWorkers, "b", ReduceOp::kSum, std::vector<int64_t>(), 0s,
      [&](const Result<ReduceValues>& result) { end = result.status(); });
  job.world.run_for(1s);
  job.worker(1).client->complete_async(nullptr);
  ASSERT_TRUE(job.run([&] { return !end.ok(); }, 1s));
  EXPECT_NE(end.text().what.find("worker 1 has completed"), std::string::npos);
}

TEST(Meeting, OfThoseThatTrainEndsWithoutWhoCompletes) {
  Job job(26);
  job.start();
  std::vector<double> sums;
  const auto come = [&](uint32_t index) {
    job.worker(index).client->reduce_async(
        Group::kTraining, "s", ReduceOp::kSum, std::vector<double>{1.0 + index}, 0s,
        [&](const Result<ReduceValues>& result) {
          sums.push_back(std::get<std::vector<double>>(result.value()).front());
        });
  };
  come(0);
  come(2);
  job.world.run_for(1s);
  EXPECT_TRUE(sums.empty());
  job.worker(1).client->complete_async(nullptr);
  ASSERT_TRUE(job.run([&] { return sums.size() == 2; }, 1s));
  EXPECT_EQ(sums, (std::vector<double>{4, 4}));
  come(0);
  come(2);
  ASSERT_TRUE(job.run([&] { return sums.size() == 4; }, 1s)) << "it is not expected any more";
  EXPECT_TRUE(job.verdicts.empty());
}

// And only in those of its name that are as long.
TEST(Meeting, OfThoseThatTrainHasWhatOthersLeftBehind) {
  Job job(28);
  job.start();
  std::map<std::string, std::vector<double>> sums;
  const auto come = [&](uint32_t index, const std::string& name, size_t count) {
    job.worker(index).client->reduce_async(
        Group::kTraining, name, ReduceOp::kSum, std::vector<double>(count, 1.0), 0s,
        [&sums, key = str_cat(name, count)](const Result<ReduceValues>& result) {
          sums[key] = std::get<std::vector<double>>(result.value());
        });
  };
  job.worker(1).client->leave_behind("s", {5, 0});
  for (const uint32_t index : {0U, 2U}) come(index, "s", 2);
  job.world.run_for(1s);
  EXPECT_TRUE(sums.empty());
  job.worker(1).client->complete_async(nullptr);
  ASSERT_TRUE(job.run([&] { return sums.contains("s2"); }, 1s));
  EXPECT_EQ(sums["s2"], (std::vector<double>{7, 2}));
  for (const uint32_t index : {0U, 2U}) come(index, "s", 1);
  for (const uint32_t index : {0U, 2U}) come(index, "t", 2);
  ASSERT_TRUE(job.run([&] { return sums.contains("s1") && sums.contains("t2"); }, 1s));
  EXPECT_EQ(sums["s1"], (std::vector<double>{2}));
  EXPECT_EQ(sums["t2"], (std::vector<double>{2, 2}));
}

TEST(Coordinator, WhoAsksForACheckpointAsksAllWorkersThatTrain) {
  Job job(27);
  job.start();
  job.worker(2).client->complete_async(nullptr);
  job.world.run_for(1s);
  job.worker(1).client->ask_to_save_async();
  ASSERT_TRUE(job.run([&] { return job.worker(0).client->saves_asked() == 1; }, 100ms));
  EXPECT_EQ(job.worker(1).client->saves_asked(), 1U);
  EXPECT_EQ(job.worker(2).client->saves_asked(), 0U);
  // One whose connection was gone meanwhile is told when it is back.
  job.world.cut(job.home, *job.worker(0).loop);
  job.worker(1).client->ask_to_save_async();
  ASSERT_TRUE(job.run([&] { return job.worker(0).client->saves_asked() == 2; }, 5s));
  EXPECT_TRUE(job.verdicts.empty());
}

// Cut, refused, slow and repeating links: every barrier is passed by all or by none, in step.
class MeetingFaults : public ::testing::TestWithParam<uint64_t> {};

uint64_t run_meetings(uint64_t seed) {
  SimFaults faults;
  faults.max_chunk = 40;
  faults.cut = 0.02;
  faults.duplicate = 0.1;
  faults.refuse = 0.1;
  CoordinatorOptions options;
  options.reconnect_grace = {5s, 5s};
  Job job(seed, faults, options);
  EXPECT_TRUE(job.server->listen().ok());
  job.coordinator->start();
  constexpr int64_t kRounds = 20;
  std::array<int64_t, kWorkers> done{};
  std::function<void(uint32_t)> next = [&](uint32_t i) {
    job.worker(i).client->reduce_async(
        Group::kWorkers, "step", ReduceOp::kSum, std::vector<int64_t>{done[i] * 10 + i}, 0s,
        [&, i](const Result<ReduceValues>& result) {
          EXPECT_TRUE(result.ok()) << "seed " << seed << ": " << result.status().to_string();
          if (!result.ok()) return;
          EXPECT_EQ(std::get<std::vector<int64_t>>(result.value()),
                    (std::vector<int64_t>{done[i] * 30 + 3}))
              << "seed " << seed;
          if (++done[i] < kRounds) next(i);
        });
  };
  for (auto& [id, member] : job.members) member.client->start();
  for (uint32_t i = 0; i < kWorkers; ++i) next(i);
  const bool passed = job.run(
      [&] {
        return !job.verdicts.empty() ||
               std::all_of(done.begin(), done.end(), [](int64_t n) { return n == kRounds; });
      },
      600s);
  EXPECT_TRUE(passed && job.verdicts.empty()) << "seed " << seed;
  return job.world.trace_hash();
}

TEST_P(MeetingFaults, EveryMemberSeesEverySum) {
  for (uint64_t seed = GetParam() * 20; seed < (GetParam() + 1) * 20; ++seed) run_meetings(seed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MeetingFaults, ::testing::Range<uint64_t>(0, 5));

TEST(MeetingReplay, TheSameSeedGivesTheSameRun) {
  EXPECT_EQ(run_meetings(3), run_meetings(3));
}

}  // namespace
}  // namespace fleet::transport

#include "launch/progress_board.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace fleet::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgressBoardTest : public ::testing::Test {
 protected:
  bool worker(int index, const std::string& line) {
    return board_.update(Role::kWorker, index, line, now_);
  }
  bool server(int index, const std::string& line) {
    return board_.update(Role::kServer, index, line, now_);
  }
  void pass(Duration time) { now_ += time; }
  std::string line() const { return board_.line(now_); }

  TimePoint start_ = steady_clock().now();
  TimePoint now_ = start_;
  ProgressBoard board_{2, 2, start_};
};

TEST_F(ProgressBoardTest, SaysThatItRunsBeforeAnybodySpoke) {
  EXPECT_EQ(line(), "0.0 s  2 workers, 2 servers  running");
  EXPECT_EQ(ProgressBoard(1, 0, start_).line(start_), "0.0 s  1 worker  running");
  EXPECT_EQ(board_.summary(now_), "");
}

TEST_F(ProgressBoardTest, AddsUpTheSpeedOfAllWorkers) {
  EXPECT_TRUE(worker(0, "progress step=100 steps=1000 samples=3200 loss=0.5"));
  EXPECT_TRUE(worker(1, "progress step=80 samples=2560"));
  pass(seconds(2));
  worker(0, "progress step=140 samples=4480 loss=0.25");
  worker(1, "progress step=100 samples=3200");
  EXPECT_EQ(line(),
            "2.0 s  2 workers, 2 servers  step 140/1000  loss 0.25  30 steps/s  960 samples/s  "
            "slowest worker 1 (step 100)  ETA 43 s");
}

TEST_F(ProgressBoardTest, SaysWhoWaitsForWhomAndSinceWhen) {
  pass(seconds(40));
  EXPECT_TRUE(server(0, "stall who=worker/1 phase=computing step=12 for_s=14 waiting=worker/0"));
  EXPECT_EQ(
      line(),
      "40.0 s  2 workers, 2 servers  running  worker 0 waits for worker 1 (computing at step 12 "
      "for 14 s, since 26.0 s)");
  const auto stall = nlohmann::json::parse(board_.json(now_, false)).at("stall");
  EXPECT_EQ(stall, nlohmann::json::parse(R"({"who": "worker 1", "phase": "computing", "step": 12,
      "for_s": 14, "since_t": 26.0, "waiting": ["worker 0"]})"));
  server(0, "stall who=worker/1 phase=computing step=12 for_s=14");
  EXPECT_THAT(line(), HasSubstr("worker 1 does not advance (computing"));
  server(0,
         "stall who=worker/9 phase=sending step=2 for_s=11 "
         "waiting=worker/0,worker/1,worker/2,worker/3,server/1");
  EXPECT_THAT(line(), HasSubstr("5 workers wait for worker 9 (sending"));
  EXPECT_FALSE(server(0, "stall who=everybody"));
  pass(seconds(4));
  EXPECT_THAT(line(), Not(HasSubstr("worker 9"))) << "nobody repeats it";
}

TEST_F(ProgressBoardTest, TakesTheSpeedThatAWorkerSays) {
  worker(0, "progress step=120 loss=0.5 steps_per_s=840");
  EXPECT_THAT(line(), HasSubstr("step 120  loss 0.5  840 steps/s"));
}

TEST_F(ProgressBoardTest, SaysWhatIsNotFiniteWithStepAndProcess) {
  worker(0, "progress step=3 loss=0.5");
  EXPECT_TRUE(board_.nonfinite().empty());
  EXPECT_THAT(line(), Not(HasSubstr("FINITE")));
  server(1,
         "progress nonfinite=parameter nonfinite_variable=fc_0.w_0 nonfinite_value=inf "
         "nonfinite_step=2 nonfinite_sender=1");
  worker(1,
         "progress step=4 loss=nan nonfinite=loss nonfinite_variable=mean_0.tmp_0 "
         "nonfinite_value=nan nonfinite_step=3");
  worker(1,
         "progress step=5 nonfinite=loss nonfinite_variable=other nonfinite_value=nan "
         "nonfinite_step=4");
  const std::string first =
      "server 1: parameter 'fc_0.w_0' is inf at step 2 after a gradient of worker 1";
  const std::string second = "worker 1: the loss 'mean_0.tmp_0' is nan at step 3";
  EXPECT_EQ(board_.nonfinite(), (std::vector<std::string>{first, second}));
  EXPECT_THAT(line(), HasSubstr("NOT FINITE: " + first));
  EXPECT_THAT(board_.summary(now_), AllOf(HasSubstr("not finite: " + first + "\n"),
                                          HasSubstr("not finite: " + second + "\n")));
  const auto json = nlohmann::json::parse(board_.json(now_, true));
  EXPECT_EQ(json.at("workers").at(1).at("nonfinite"), "the loss 'mean_0.tmp_0' is nan at step 3");
}

TEST_F(ProgressBoardTest, NamesWhoWaitsLeastWhereAllAreAtTheSameStep) {
  worker(0, "progress step=10 compute_s=1 receive_s=3");
  worker(1, "progress step=11 compute_s=9 receive_s=1");
  EXPECT_THAT(line(), HasSubstr("slowest worker 1 (waits 10 %)"));
}

TEST_F(ProgressBoardTest, NamesTheBusiestServerAndTheStaleness) {
  server(0, "progress cpu_s=1 staleness=1 bytes_in=1000");
  server(1, "progress cpu_s=1 staleness=2");
  pass(seconds(1));
  server(0, "progress cpu_s=1.2 staleness=1");
  server(1, "progress cpu_s=1.75 staleness=2");
  EXPECT_THAT(line(), AllOf(HasSubstr("staleness 1.5"), HasSubstr("busiest server 1 (75 %)")));
}

TEST_F(ProgressBoardTest, WhatIsNoProgressLineOrNoNumberIsIgnored) {
  EXPECT_FALSE(worker(1, "step=1"));
  EXPECT_FALSE(worker(1, ""));
  EXPECT_TRUE(worker(0, "progress step=x loss= =3 words \x1b[31m=4"));
  EXPECT_THAT(line(), AllOf(Not(HasSubstr("step ")), Not(HasSubstr("\x1b"))));
}

TEST_F(ProgressBoardTest, SumsUpWhereTheTimeWentAndWhatServersDid) {
  worker(0, "progress step=1001 samples=32032 loss=0.02 compute_s=7 send_s=1 receive_s=2");
  worker(1, "progress step=1001 compute_s=5 reduce_s=5");
  server(0, "progress bytes_in=12500000 bytes_out=900 updates=1001 cpu_s=2 up_s=10 staleness=0.5");
  const std::string text = board_.summary(now_);
  EXPECT_THAT(text, HasSubstr("worker  steps  samples  loss  computing  sending  receiving"));
  EXPECT_THAT(text, HasSubstr("0        1001    32032  0.02       70 %     10 %       20 %"));
  EXPECT_THAT(text,
              HasSubstr("1        1001        -     -       50 %        -          -      50 %"));
  EXPECT_THAT(text, HasSubstr("0        12.5 MB  900 B     1001  20 %       0.50"));
}

TEST_F(ProgressBoardTest, SumsUpGrowingTablesOfServersThatHaveSome) {
  server(0, "progress updates=5");
  EXPECT_THAT(board_.summary(now_), Not(HasSubstr("table rows")));
  server(1,
         "progress updates=5 table_rows=1200 table_bytes=96000 table_hits=300 table_misses=100 "
         "table_admitted=1250 table_refused=7 table_evicted=50");
  const std::string text = board_.summary(now_);
  EXPECT_THAT(text,
              HasSubstr("server  table rows   memory  ids found  admitted  refused  evicted"));
  EXPECT_THAT(text,
              HasSubstr("1             1200  96.0 kB       75 %      1250        7       50"));
  const auto json = nlohmann::json::parse(board_.json(now_, true));
  EXPECT_EQ(json.at("servers").at(1).at("table_rows"), 1200);
}

TEST_F(ProgressBoardTest, JsonHasSharesAndTheBusyShareOfAWholeJobAtItsEnd) {
  worker(0, "progress step=10 loss=0.5 compute_s=7 send_s=1 receive_s=2");
  worker(1, "progress step=10 loss=0.25");
  server(0, "progress cpu_s=1 up_s=10");
  pass(seconds(1));
  server(0, "progress cpu_s=1.5 up_s=11");
  const auto json = nlohmann::json::parse(board_.json(now_, false));
  EXPECT_EQ(json.at("loss"), 0.5) << "of the first worker, as in the line";
  const auto& first = json.at("workers").at(0);
  EXPECT_DOUBLE_EQ(first.at("compute_share"), 0.7);
  EXPECT_DOUBLE_EQ(first.at("send_share"), 0.1);
  EXPECT_DOUBLE_EQ(first.at("receive_share"), 0.2);
  EXPECT_FALSE(first.contains("reduce_share"));
  EXPECT_DOUBLE_EQ(json.at("servers").at(0).at("busy"), 0.5);
  const auto last = nlohmann::json::parse(board_.json(now_, true));
  EXPECT_DOUBLE_EQ(last.at("servers").at(0).at("busy"), 1.5 / 11);
}

TEST_F(ProgressBoardTest, CountsRestartsWhatTheyCostAndWhy) {
  AttemptHistory history(start_);
  ProgressBoard first(2, 0, start_, &history);
  EXPECT_EQ(first.restarts_text(now_), "");
  EXPECT_EQ(nlohmann::json::parse(first.json(now_, false)).at("restarts"), 0);
  first.update(Role::kWorker, 0, "progress step=20", now_);
  first.update(Role::kWorker, 1, "progress step=22", now_);
  first.update(Role::kWorker, 0, "progress step=21", now_);
  history.fail(start_ + seconds(10), "worker 1 was killed by SIGKILL", first.steps_seen());
  history.begin(start_ + seconds(11));
  now_ = start_ + seconds(12);
  ProgressBoard second(2, 0, now_, &history);
  second.update(Role::kWorker, 0, "progress step=0", now_);
  EXPECT_EQ(second.line(now_), "12.0 s  2 workers  step 0  1 restart (2.0 s lost)");
  second.update(Role::kWorker, 1, "progress step=16", start_ + milliseconds(12500));
  now_ = start_ + seconds(20);
  EXPECT_THAT(second.line(now_), HasSubstr("  1 restart (2.5 s lost, 7 steps repeated)"));
  EXPECT_THAT(second.summary(now_),
              AllOf(HasSubstr("restart  failed after   lost  steps repeated"),
                    HasSubstr("1              10.0 s  2.5 s               7"),
                    HasSubstr("  restart 1: worker 1 was killed by SIGKILL\n")));
  const auto json = nlohmann::json::parse(second.json(now_, true));
  EXPECT_EQ(json.at("t"), 20.0);
  EXPECT_EQ(json.at("restarts"), 1);
  EXPECT_EQ(json.at("restart_lost_s"), 2.5);
  EXPECT_EQ(json.at("steps_repeated"), 7);
  EXPECT_EQ(json.at("restarted"), nlohmann::json::parse(R"([{"t": 10.0,
      "reason": "worker 1 was killed by SIGKILL", "lost_s": 2.5, "steps_repeated": 7}])"));
}

TEST_F(ProgressBoardTest, SaysTheSameAsJson) {
  worker(0, "progress step=10 steps=20 samples=320 loss=0.5");
  pass(seconds(1));
  worker(0, "progress step=12 samples=384 loss=nan");
  server(1, "progress bytes_in=77");
  const auto json = nlohmann::json::parse(board_.json(now_, false));
  EXPECT_EQ(json.at("t"), 1.0);
  EXPECT_EQ(json.at("steps_per_s"), 2.0);
  EXPECT_EQ(json.at("samples_per_s"), 64.0);
  EXPECT_EQ(json.at("eta_s"), 4.0);
  EXPECT_EQ(json.at("workers").at(0).at("step"), 12);
  EXPECT_FALSE(json.at("workers").at(0).contains("loss")) << "not a number is no JSON";
  EXPECT_EQ(json.at("servers").at(0).at("bytes_in"), 77);
  EXPECT_FALSE(json.contains("final"));
  const auto last = nlohmann::json::parse(board_.json(now_, true));
  EXPECT_TRUE(last.at("final"));
  EXPECT_FALSE(last.contains("eta_s"));
}

}  // namespace
}  // namespace fleet::launch

#include "strategies/collective/job_watch.h"

#include <future>
#include <gmock/gmock.h>
#include <thread>

namespace fleet::strategies {
namespace {

using ::testing::HasSubstr;
using transport::Phase;

// The ranks of a job, each with its watch, in one process.
class Job {
 public:
  explicit Job(uint32_t workers) : verdicts_(workers) {
    for (auto& verdict : verdicts_) futures_.push_back(verdict.get_future());
    watches_.resize(workers);
    options_.worker_num = workers;
    options_.coordinator = {.host = "127.0.0.1", .port = 0};
    options_.job_id = "watch-test";
    options_.secret = transport::Secret::of_text("0123456789abcdef", "test");
    options_.heartbeat_interval = std::chrono::milliseconds(50);
    options_.heartbeat_timeout = std::chrono::seconds(2);
  }

  JobWatchOptions& options() { return options_; }

  Status start(uint32_t rank) {
    options_.rank = rank;
    watches_[rank] = std::make_unique<JobWatch>(
        options_, [this, rank](Status why) { verdicts_[rank].set_value(std::move(why)); });
    const Status status = watches_[rank]->start();
    if (rank == 0 && status.ok()) options_.coordinator = watches_[0]->bound();
    return status;
  }
  void start_all() {
    for (uint32_t rank = 0; rank < watches_.size(); ++rank) EXPECT_TRUE(start(rank).ok());
  }
  JobWatch& at(uint32_t rank) { return *watches_[rank]; }
  void lose(uint32_t rank) { watches_[rank].reset(); }

  Status verdict_of(uint32_t rank) {
    if (futures_[rank].wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      return Status(ErrorCode::kInternal, {.what = "no verdict"});
    }
    return futures_[rank].get();
  }
  void complete_all() {
    at_all([](JobWatch& watch) { return watch.complete(); });
  }
  void meet_all() {
    at_all([](JobWatch& watch) { return watch.meet("start"); });
  }

 private:
  template <class Call>
  void at_all(const Call& call) {
    std::vector<std::jthread> threads;
    for (auto& watch : watches_) {
      threads.emplace_back([&] { EXPECT_EQ(call(*watch).to_string(), "ok"); });
    }
  }

  JobWatchOptions options_;
  std::vector<std::promise<Status>> verdicts_;
  std::vector<std::future<Status>> futures_;
  std::vector<std::unique_ptr<JobWatch>> watches_;
};

TEST(JobWatchTest, AJobThatEndsInGoodOrderHasNoVerdict) {
  Job job(3);
  job.start_all();
  for (uint32_t rank = 0; rank < 3; ++rank) job.at(rank).set_phase(Phase::kComputing, 5);
  job.complete_all();
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(job.at(rank).verdict().ok());
}

TEST(JobWatchTest, ALostWorkerIsNamedToAllOthersWithPhaseAndStep) {
  Job job(3);
  job.start_all();
  job.at(2).set_phase(Phase::kComputing, 41);
  job.at(1).abort({.culprit = {transport::Role::kWorker, 2},
                   .phase = Phase::kComputing,
                   .step = 41,
                   .code = ErrorCode::kPeerLost,
                   .reason = "it sent wrong bytes"});
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const Status verdict = job.verdict_of(rank);
    EXPECT_THAT(verdict.to_string(), HasSubstr("worker 2"));
    EXPECT_THAT(verdict.to_string(), HasSubstr("step 41"));
  }
}

TEST(JobWatchTest, AWorkerThatDisappearsEndsTheJob) {
  Job job(2);
  job.start_all();
  job.meet_all();
  job.lose(1);
  const Status verdict = job.verdict_of(0);
  EXPECT_FALSE(verdict.ok());
  EXPECT_THAT(verdict.to_string(), HasSubstr("worker 1"));
}

TEST(JobWatchTest, TheLossOfRankZeroIsNamedToo) {
  Job job(2);
  job.start_all();
  job.meet_all();
  job.lose(0);
  EXPECT_THAT(job.verdict_of(1).to_string(), HasSubstr("worker 0"));
}

TEST(JobWatchTest, AWorkerOfAnotherProgramIsRefused) {
  Job job(2);
  job.options().facts["program"] = "aaaa";
  EXPECT_TRUE(job.start(0).ok());
  job.options().facts["program"] = "bbbb";
  EXPECT_TRUE(job.start(1).ok());
  const std::string text = job.verdict_of(1).to_string();
  EXPECT_THAT(text, HasSubstr("aaaa"));
  EXPECT_THAT(text, HasSubstr("bbbb"));
}

TEST(JobWatchTest, APortInUseIsSaid) {
  Job first(1);
  EXPECT_TRUE(first.start(0).ok());
  Job second(1);
  second.options().coordinator = first.options().coordinator;
  EXPECT_EQ(second.start(0).code(), ErrorCode::kAddressInUse);
  first.complete_all();
}

}  // namespace
}  // namespace fleet::strategies

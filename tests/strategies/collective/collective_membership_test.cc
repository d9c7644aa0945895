#include "strategies/collective/collective_membership.h"

#include <future>
#include <gmock/gmock.h>
#include <thread>

namespace fleet::strategies {
namespace {

using ::testing::HasSubstr;
using transport::Phase;

// The ranks of a job, each with its membership, in one process.
class Job {
 public:
  explicit Job(int workers)
      : address_(promise_.get_future()), verdicts_(static_cast<size_t>(workers)) {
    for (auto& verdict : verdicts_) futures_.push_back(verdict.get_future());
    members_.resize(verdicts_.size());
    options_.cluster.mode = role_maker::Mode::kCollective;
    options_.cluster.worker_num = workers;
    options_.cluster.job_id = "membership-test";
    options_.secret = transport::Secret::of_text("0123456789abcdef", "test");
    options_.heartbeat_interval = std::chrono::milliseconds(50);
    options_.heartbeat_timeout = std::chrono::seconds(2);
  }

  MembershipOptions& options() { return options_; }

  // Rank 0 first.
  void start(size_t rank) {
    options_.cluster.index = static_cast<int>(rank);
    const auto broadcast = [&](const std::string& from_rank_0) {
      if (rank == 0) promise_.set_value(from_rank_0);
      return address_.get();
    };
    members_[rank] = std::make_unique<CollectiveMembership>(
        options_, broadcast, [this, rank](const Status& why) { verdicts_[rank].set_value(why); });
  }
  void start_all() {
    for (size_t rank = 0; rank < members_.size(); ++rank) start(rank);
    at_all([](CollectiveMembership& member) { member.meet("start"); });
  }
  void leave_all() {
    at_all([](CollectiveMembership& member) { member.leave(); });
  }
  CollectiveMembership& at(size_t rank) { return *members_[rank]; }
  void lose(size_t rank) { members_[rank].reset(); }

  std::string verdict_of(size_t rank) {
    if (futures_[rank].wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      return "no verdict";
    }
    return futures_[rank].get().to_string();
  }

 private:
  template <class Call>
  void at_all(const Call& call) {
    std::vector<std::jthread> threads;
    for (auto& member : members_) {
      threads.emplace_back([&] { EXPECT_NO_THROW(call(*member)); });
    }
  }

  MembershipOptions options_;
  std::promise<std::string> promise_;
  std::shared_future<std::string> address_;
  std::vector<std::promise<Status>> verdicts_;
  std::vector<std::future<Status>> futures_;
  std::vector<std::unique_ptr<CollectiveMembership>> members_;
};

TEST(CollectiveMembershipTest, AJobThatEndsInGoodOrderHasNoVerdict) {
  Job job(3);
  job.start_all();
  for (size_t rank = 0; rank < 3; ++rank) job.at(rank).set_phase(Phase::kComputing, 5);
  job.leave_all();
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(job.at(rank).verdict().ok());
}

TEST(CollectiveMembershipTest, AnAbortReachesEveryRankWithPhaseAndStep) {
  Job job(3);
  job.start_all();
  job.at(1).abort({.culprit = {transport::PeerRole::kWorker, 2},
                   .phase = Phase::kComputing,
                   .step = 41,
                   .code = ErrorCode::kPeerLost,
                   .reason = "it sent wrong bytes"});
  for (size_t rank = 0; rank < 3; ++rank) {
    const std::string verdict = job.verdict_of(rank);
    EXPECT_THAT(verdict, HasSubstr("worker 2"));
    EXPECT_THAT(verdict, HasSubstr("computing"));
    EXPECT_THAT(verdict, HasSubstr("step 41"));
    EXPECT_THROW(job.at(rank).leave(), PeerError);
  }
}

TEST(CollectiveMembershipTest, ARankThatDisappearsIsNamed) {
  Job job(2);
  job.start_all();
  job.at(1).set_phase(Phase::kComputing, 41);
  job.lose(1);
  EXPECT_THAT(job.verdict_of(0), HasSubstr("worker 1 ended the job in phase computing at step 41"));
}

TEST(CollectiveMembershipTest, TheLossOfRankZeroIsNamedToo) {
  Job job(2);
  job.start_all();
  job.at(0).set_phase(Phase::kComputing, 41);
  job.lose(0);
  EXPECT_THAT(job.verdict_of(1), HasSubstr("worker 0 ended the job in phase computing at step 41"));
}

TEST(CollectiveMembershipTest, ARankOfAnotherProgramIsRefused) {
  Job job(2);
  job.options().facts["program"] = "aaaa";
  job.start(0);
  job.options().facts["program"] = "bbbb";
  job.start(1);
  const std::string verdict = job.verdict_of(1);
  EXPECT_THAT(verdict, HasSubstr("aaaa"));
  EXPECT_THAT(verdict, HasSubstr("bbbb"));
}

}  // namespace
}  // namespace fleet::strategies

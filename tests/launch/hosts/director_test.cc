#include "launch/hosts/director.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

using ::testing::HasSubstr;

// Two hosts, of which the test says what they report.
class DirectorTest : public ::testing::Test, public HostLines {
 protected:
  void begin(int max_restarts) {
    DirectorOptions options;
    options.hosts = {"host a", "host b"};
    options.restarts.most = max_restarts;
    options.id_of = [](int restarts) {
      return AttemptId{.restarts = restarts, .job_id = str_cat("job-", restarts)};
    };
    director_ = std::make_unique<Director>(std::move(options), *this, loop_, console_);
    ready(0);
    ready(1);
  }
  void ready(size_t host) { tell(host, {.kind = Report::Kind::kReady, .workers = 1}); }
  void tell(size_t host, const Report& report) { director_->on_report(host, report); }
  void fail(size_t host, const std::string& reason, bool sure) {
    tell(host, {.kind = Report::Kind::kFailure, .reason = reason, .sure = sure});
  }
  void line(size_t host, const std::string& text) {
    tell(host, {.kind = Report::Kind::kLine, .line = text});
  }
  void ended(size_t host, bool saved = false, int signal = 0) {
    tell(host, {.kind = Report::Kind::kEnded, .signal = signal, .saved = saved});
  }
  // What has been ordered since the last call, but for pings: "a:begin b:begin".
  std::string ordered() { return std::exchange(ordered_, ""); }
  void pass_time() { loop_.run_once(Duration(0)); }

  EventLoop loop_;
  Console console_{"launch"};
  std::unique_ptr<Director> director_;
  Order last_;
  std::optional<int> code_;

 private:
  void send(size_t host, const Order& order) override {
    if (order.kind == Order::Kind::kPing) return;
    constexpr const char* kNames[] = {"begin", "save", "end", "over"};
    ordered_ += str_cat(ordered_.empty() ? "" : " ",
                        host == 0 ? "a:" : "b:", kNames[static_cast<int>(order.kind)]);
    last_ = order;
  }
  void drop(size_t host) override { ordered_ += str_cat(" drop ", host); }
  void on_over(int exit_code) override { code_ = exit_code; }

  std::string ordered_;
};

TEST_F(DirectorTest, BeginsOnAllHostsWhenAllAreThere) {
  begin(0);
  EXPECT_EQ(ordered(), "a:begin b:begin");
  EXPECT_EQ(last_.attempt.job_id, "job-0");
  ended(0);
  EXPECT_EQ(ordered(), "") << "the other host still runs";
  ended(1);
  EXPECT_EQ(ordered(), "a:over b:over");
  EXPECT_EQ(code_, 0);
}

TEST_F(DirectorTest, TheReasonThatIsSureCounts) {
  begin(1);
  ordered();
  fail(0, "worker 0 failed with exit code 1", false);
  EXPECT_EQ(ordered(), "a:end b:end");
  fail(1, "worker 1 was killed by SIGKILL", true);
  ended(0);
  ordered();
  ended(1);
  pass_time();
  EXPECT_EQ(ordered(), "a:begin b:begin");
  EXPECT_EQ(last_.attempt.job_id, "job-1");
  EXPECT_THAT(last_.attempt.log_heading, HasSubstr("worker 1 was killed by SIGKILL"));
}

TEST_F(DirectorTest, AHostThatHasEndedWellBeginsAgainWithTheOthers) {
  begin(1);
  ended(0);
  fail(1, "worker 1 was killed by SIGKILL", true);
  ordered();
  ended(1);
  pass_time();
  EXPECT_EQ(ordered(), "a:begin b:begin");
}

TEST_F(DirectorTest, WaitsForAHostThatIsLost) {
  begin(1);
  ordered();
  director_->on_lost(1, "no route");
  EXPECT_EQ(ordered(), "a:end");
  ended(0);
  pass_time();
  EXPECT_EQ(ordered(), "");
  EXPECT_TRUE(director_->waits_for(1));
  ready(1);
  EXPECT_EQ(ordered(), "a:begin b:begin");
}

TEST_F(DirectorTest, DoesNotHearAHostThatRunsNothing) {
  begin(0);
  ended(0);
  ordered();
  fail(0, "late", true);
  line(0, "progress step=1 saves=1");
  EXPECT_EQ(ordered(), "");
  ended(1);
  EXPECT_EQ(code_, 0);
}

TEST_F(DirectorTest, SavesWhereWorkersSayThatTheyCan) {
  begin(3);
  line(1, "progress completed=0 saves=1");
  ordered();
  director_->on_signal(SIGTERM);
  EXPECT_EQ(ordered(), "a:save b:save");
  ended(0, true);
  ended(1, true);
  EXPECT_EQ(code_, kExitRequeue);
}

TEST_F(DirectorTest, TheSecondSignalDoesNotWait) {
  begin(3);
  line(1, "progress completed=0 saves=1");
  director_->on_signal(SIGTERM);
  ordered();
  director_->on_signal(SIGTERM);
  EXPECT_EQ(ordered(), "a:end b:end");
  ended(0);
  ended(1);
  EXPECT_EQ(code_, 128 + SIGTERM);
}

TEST_F(DirectorTest, AWorkerThatCannotSaveEndsTheOthers) {
  begin(3);
  line(1, "progress completed=0 saves=1");
  director_->on_signal(SIGTERM);
  ordered();
  ended(0, false, SIGTERM);
  EXPECT_EQ(ordered(), "b:end");
  ended(1, true);
  EXPECT_EQ(code_, 128 + SIGTERM);
}

TEST_F(DirectorTest, AFailureAfterASignalIsNotStartedAgain) {
  begin(3);
  line(1, "progress completed=0 saves=1");
  director_->on_signal(SIGTERM);
  fail(0, "worker 0 failed with exit code 1", false);
  ended(0);
  ended(1);
  EXPECT_EQ(code_, 128 + SIGTERM);
}

TEST_F(DirectorTest, AValueThatIsNotFiniteOnAnotherHostIsFinal) {
  begin(3);
  line(1, "progress step=3 nonfinite=loss nonfinite_variable=x nonfinite_value=nan");
  fail(0, "worker 0 failed with exit code 1", false);
  ended(0);
  ended(1);
  EXPECT_EQ(code_, 1);
}

}  // namespace
}  // namespace fleet::launch

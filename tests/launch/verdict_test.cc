#include "launch/verdict.h"

#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/console.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch {
namespace {

using ::testing::HasSubstr;

// Two workers and a server, all of which failed with exit code 1; logs are in the workplace.
class Verdict : public ::testing::Test {
 protected:
  Verdict() {
    for (const char* title : {"worker 0", "worker 1", "server 0"}) {
      ProcessRecord record;
      record.title = title;
      record.log_file = place_.path(title);
      record.role = record.title[0] == 'w' ? Role::kWorker : Role::kServer;
      record.index = record.title.back() - '0';
      record.pid = 100 + static_cast<pid_t>(records_.size());
      record.ending.status.code = 1;
      records_.push_back(record);
    }
  }
  void log(size_t record, const std::string& text) const {
    std::ofstream(records_[record].log_file) << text;
  }

  testing::Workplace place_;
  std::vector<ProcessRecord> records_;
};

TEST_F(Verdict, IsTheFirstFailureWhenNothingElseIsKnown) {
  EXPECT_EQ(choose_cause(records_, {2, 0, 1}).record, 2U);
}

TEST_F(Verdict, PrefersASignalToAnEarlierExitCode) {
  records_[1].ending.status = {.code = 0, .signal = SIGKILL};
  EXPECT_EQ(choose_cause(records_, {0, 2, 1}).record, 1U);
}

TEST_F(Verdict, TakesAnUncaughtExceptionForAVictim) {
  records_[0].ending.status = {.code = 0, .signal = SIGABRT};
  records_[1].ending.status = {.code = 0, .signal = SIGSEGV};
  EXPECT_EQ(choose_cause(records_, {0, 1}).record, 1U);
}

TEST_F(Verdict, IsWhomTheVictimsNameThoughItLives) {
  records_[1].running = true;
  log(0, "noise\nerror: worker 1 was lost in phase computing at step 12: no heartbeat\n");
  const Cause cause = choose_cause(records_, {0, 2});
  EXPECT_EQ(cause.record, 1U);
  const std::string text = explain(cause, records_, steady_clock().now());
  EXPECT_THAT(text, HasSubstr("worker 1 (pid 101) is the cause"));
  EXPECT_THAT(text,
              HasSubstr("worker 0 says: error: worker 1 was lost in phase computing at step 12"));
}

TEST_F(Verdict, IsTheStoppedProcessWhenTheOthersGaveUp) {
  records_[2].running = true;
  records_[2].stopped = true;
  EXPECT_EQ(choose_cause(records_, {0, 1}).record, 2U);
}

TEST_F(Verdict, IgnoresAnAccusationOfNobodyInTheJob) {
  log(0, "culprit=worker/17\n");
  EXPECT_EQ(choose_cause(records_, {0, 1}).record, 0U);
}

TEST_F(Verdict, ReadsThePartOfTheAttemptOnly) {
  log(0, "error: worker 1 was lost in phase computing at step 12: no heartbeat");
  for (ProcessRecord& record : records_) {
    open_log(record.log_file, false);
    record.log_begin = append_line(record.log_file, "== attempt 2 of 3, worker 1 was lost");
  }
  EXPECT_EQ(choose_cause(records_, {0, 1}).record, 0U);
  EXPECT_THAT(explain(choose_cause(records_, {0}), records_, steady_clock().now()),
              HasSubstr("worker 0 has nothing of this attempt"));
  std::ofstream(records_[0].log_file, std::ios::app) << "of this attempt\nculprit=server/0\n";
  const Cause cause = choose_cause(records_, {0, 1});
  EXPECT_EQ(cause.record, 2U);
  EXPECT_EQ(last_lines(records_[0].log_file, 9, records_[0].log_begin),
            (std::vector<std::string>{"of this attempt", "culprit=server/0"}));
  EXPECT_EQ(last_lines(records_[0].log_file, 9).size(), 4U) << "the heading is a line of its own";
}

TEST_F(Verdict, ShowsOnlyTheLastLinesAndNoControlCharacters) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i) + "\n";
  log(0, text + "\x1b[2Jtail\n");
  const std::string message = explain(choose_cause(records_, {0}), records_, steady_clock().now());
  EXPECT_THAT(message, HasSubstr("| line 99\n"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("| line 90\n")));
  EXPECT_THAT(message, HasSubstr("|  [2Jtail"));
}

TEST(Blame, IsReadFromTheVerdictAndFromAField) {
  const auto verdict = parse_blame("PEER_LOST server 1 was lost in phase serving at step 3: x");
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->role, Role::kServer);
  EXPECT_EQ(verdict->index, 1);
  const auto field = parse_blame("12:00:01 error worker/0 coordinator job ends culprit=rank/3 x=1");
  ASSERT_TRUE(field);
  EXPECT_EQ(field->role, Role::kWorker);
  EXPECT_EQ(field->index, 3);
  EXPECT_FALSE(parse_blame("worker 1 is ready"));
}

}  // namespace
}  // namespace fleet::launch

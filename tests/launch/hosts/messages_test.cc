#include "launch/hosts/messages.h"

#include <gtest/gtest.h>

namespace fleet::launch {
namespace {

TEST(Messages, OrdersComeAsTheyWereSent) {
  const Order sent{.kind = Order::Kind::kBegin,
                   .attempt = {.restarts = 3,
                               .job_id = "mine-r3",
                               .secret = "a \"secret\"\n",
                               .log_heading = "== attempt 4, é"},
                   .reason = "why",
                   .exit_code = 75};
  const std::string line = to_line(sent);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto order = parse_order(line);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Order::Kind::kBegin);
  EXPECT_EQ(order->attempt.restarts, 3);
  EXPECT_EQ(order->attempt.job_id, sent.attempt.job_id);
  EXPECT_EQ(order->attempt.secret, sent.attempt.secret);
  EXPECT_EQ(order->attempt.log_heading, sent.attempt.log_heading);
  EXPECT_EQ(order->reason, "why");
  EXPECT_EQ(order->exit_code, 75);
}

TEST(Messages, ReportsComeAsTheyWereSent) {
  const Report sent{.kind = Report::Kind::kFailure,
                    .workers = 4,
                    .role = Role::kServer,
                    .index = 7,
                    .line = "progress step=3",
                    .reason = "worker 1 was killed",
                    .why_final = "final",
                    .sure = true,
                    .ago = std::chrono::milliseconds(1500),
                    .signal = 15,
                    .saved = true};
  const auto report = parse_report(to_line(sent));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->kind, Report::Kind::kFailure);
  EXPECT_EQ(report->workers, 4);
  EXPECT_EQ(report->role, Role::kServer);
  EXPECT_EQ(report->index, 7);
  EXPECT_EQ(report->line, sent.line);
  EXPECT_EQ(report->reason, sent.reason);
  EXPECT_EQ(report->why_final, sent.why_final);
  EXPECT_TRUE(report->sure);
  EXPECT_EQ(report->ago, sent.ago);
  EXPECT_EQ(report->signal, 15);
  EXPECT_TRUE(report->saved);
}

TEST(Messages, BytesThatAreNoTextDoNotGetInTheWay) {
  const auto report = parse_report(to_line(Report{.kind = Report::Kind::kLine, .line = "a\xff z"}));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->line.substr(0, 1), "a");
}

TEST(Messages, OtherLinesAreNone) {
  for (const char* line : {"", "{", "7", "[1]", "{}", R"({"kind":"dance"})", R"({"kind":7})",
                           R"({"kind":"begin","restarts":"many"})"}) {
    EXPECT_FALSE(parse_order(line)) << line;
  }
  EXPECT_FALSE(parse_report(to_line(Order{.kind = Order::Kind::kSave})));
}

}  // namespace
}  // namespace fleet::launch

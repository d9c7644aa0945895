#include "launch/agent_channel.h"

#include <gtest/gtest.h>

#include "tests/launch/launcher_process.h"

namespace fleet::launch {
namespace {

TEST(StartOrder, SurvivesTheMessage) {
  const StartOrder order{.log_file = "l",
                         .program = "/bin/x",
                         .progress = true,
                         .argv = {"x", "", "a b", ""},
                         .set = Environment({{"A", "1"}, {"B", ""}}),
                         .unset = {"C"}};
  const auto copy = StartOrder::from_message(order.to_message());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->argv, order.argv);
  EXPECT_EQ(copy->set.all(), order.set.all());
  EXPECT_EQ(copy->unset, order.unset);
  EXPECT_TRUE(copy->progress);
}

TEST(StartOrder, TruncatedMessagesAreRefused) {
  AgentMessage message = StartOrder{
      .log_file = "l",
      .program = "p",
      .progress = false,
      .argv = {"p"},
      .set = testing::variable("A", "1"),
      .unset = {"C"}}.to_message();
  while (message.fields.size() > 1) {
    message.fields.pop_back();
    EXPECT_FALSE(StartOrder::from_message(message)) << message.fields.size();
  }
}

}  // namespace
}  // namespace fleet::launch

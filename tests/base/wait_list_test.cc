#include "base/wait_list.h"

#include <gmock/gmock.h>

namespace fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Runs what is posted when it is told to, or at once.
class TestLoop final : public Loop {
 public:
  TimePoint now() const override { return {}; }
  void post(Handler handler) override {
    if (at_once) return handler();
    posted.push_back(std::move(handler));
  }
  TimerId call_at(TimePoint, Handler) override { return 0; }
  void cancel(TimerId) override {}
  void run() {
    for (auto& handler : posted) handler();
    posted.clear();
  }

  bool at_once = true;
  std::vector<Handler> posted;
};

WaitList::Lines lines(std::vector<std::string> texts) {
  return [texts] { return texts; };
}

TEST(WaitListTest, AsksEveryLoopAndKeepsTheirOrder) {
  WaitList list;
  TestLoop loop;
  const auto worker = list.watch("worker", loop, lines({"push waits for server 0", "get too"}));
  const auto phase = list.watch("phase", lines({"sending at step 3"}));
  const auto idle = list.watch("server", loop, lines({}));
  EXPECT_THAT(list.ask(std::chrono::seconds(1)),
              ElementsAre("worker: push waits for server 0", "worker: get too",
                          "phase: sending at step 3", "server: waits for nothing"));
}

TEST(WaitListTest, ALoopThatDoesNotAnswerIsBusy) {
  WaitList list;
  TestLoop loop;
  loop.at_once = false;
  auto watch = list.watch("worker", loop, lines({"x"}));
  EXPECT_THAT(list.ask(std::chrono::milliseconds(1)),
              ElementsAre("worker: busy, its thread does not wait"));
  int asked = 0;
  auto other = list.watch("other", loop, [&asked] {
    ++asked;
    return std::vector<std::string>();
  });
  EXPECT_EQ(list.ask(std::chrono::milliseconds(1)).size(), 2u);
  other.drop();
  loop.run();
  EXPECT_EQ(asked, 0) << "an entry that was dropped is not asked any more";
}

TEST(WaitListTest, AnEntryLeavesWithItsWatch) {
  WaitList list;
  TestLoop loop;
  { const auto watch = list.watch("worker", loop, lines({"x"})); }
  EXPECT_THAT(list.ask(std::chrono::seconds(1)), IsEmpty());
}

}  // namespace
}  // namespace fleet

#include "tests/testing/virtual_time/sim_process.h"

#include <gtest/gtest.h>
#include <string>

namespace fleet::testing {
namespace {

using namespace std::chrono_literals;  // NOLINT

class SimProcessTest : public ::testing::Test {
 protected:
  // What the process said until it was over or killed; it is killed at point `last`.
  std::string run(uint64_t last, const std::function<void(SimProcess&)>& body) {
    SimProcess process(world_, disk_, "process", [last](uint64_t point) { return point == last; });
    bool over = false;
    process.start([&] {
      body(process);
      over = true;
    });
    process.run_ready();
    world_.run_until(
        [&] {
          process.run_ready();
          return over || !process.alive();
        },
        world_.now() + 1h);
    points_ = process.points();
    return said_;
  }
  void write(SimProcess& process, const std::string& text) {
    std::error_code error;
    const auto file = process.files().create("/file.", error);
    if (error) return;
    static_cast<void>(file->append(std::as_bytes(std::span(text))));
    static_cast<void>(file->sync());
  }

  transport::SimWorld world_{1};
  SimDisk disk_{[this](uint64_t below) { return world_.random(below); }};
  std::string said_;
  uint64_t points_ = 0;
};

TEST_F(SimProcessTest, TimeGoesByWhileItWaits) {
  const TimePoint begin = world_.now();
  run(100, [&](SimProcess& process) {
    process.sleep(3s);
    EXPECT_FALSE(process.wait([] { return false; }, process.loop().now() + 4s));
    EXPECT_TRUE(process.wait([] { return true; }));
  });
  EXPECT_EQ(world_.now() - begin, 7s);
}

TEST_F(SimProcessTest, WorkInTheBackgroundGoesOnMeanwhile) {
  EXPECT_EQ(run(100,
                [&](SimProcess& process) {
                  const auto background = process.make_background();
                  background->start([&, &self = *background] {
                    said_ += "a";
                    EXPECT_TRUE(self.rest(2s));
                    said_ += "c";
                  });
                  process.sleep(1s);
                  said_ += "b";
                  background->finish();
                  said_ += "d";
                }),
            "abcd");
}

TEST_F(SimProcessTest, EachChangeOfTheDiskHasTwoPoints) {
  run(100, [&](SimProcess& process) { write(process, "text"); });
  EXPECT_EQ(points_, 6U);
}

// Nothing of it is seen any more, and what it has is destroyed.
TEST_F(SimProcessTest, EndsWhereItWaitsOnceItWasKilled) {
  const auto alive = std::make_shared<bool>();
  EXPECT_EQ(run(1,
                [&, alive](SimProcess& process) {
                  const auto background = process.make_background();
                  background->start([&, alive, &self = *background] {
                    said_ += "a";
                    static_cast<void>(self.rest(1h));
                    said_ += "b";
                  });
                  process.sleep(1s);
                  write(process, "text");
                  write(process, "text");
                  process.sleep(1s);
                  said_ += "c";
                }),
            "a");
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_EQ(disk_.names_in("/").size(), 1U);
}

}  // namespace
}  // namespace fleet::testing

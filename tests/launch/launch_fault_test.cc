// Processes of a job are killed at seeded moments, from the launcher's first millisecond on.
#include <csignal>
#include <gtest/gtest.h>
#include <poll.h>
#include <random>

#include "base/strings.h"
#include "launch/process/process_tree.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch::testing {
namespace {

constexpr int kSeeds = 20;
constexpr int kStopSeeds = 10;  // each takes the heartbeat timeout

struct Target {
  const char* launcher;
  int latest_ms;  // the job stands by then
};
void PrintTo(const Target& target, std::ostream* out) {
  *out << target.launcher;
}

class Fault : public ::testing::TestWithParam<Target> {
 protected:
  std::vector<std::string> job(const Workplace& place) const {
    const std::string script = place.script("exec sleep 1000");
    if (std::string(GetParam().launcher) == "launch") return {"--nproc_per_node", "2", script};
    return {"--worker_num", "2", "--server_num", "1", script};
  }
  // Every process of the job has the mailbox of its test in its environment.
  static void expect_nothing_left(const Workplace& place) {
    const std::string mark = "MAILBOX=" + place.path("mailbox");
    const TimePoint end = steady_clock().now() + seconds(5);
    std::vector<pid_t> left = marked_processes(mark);
    while (!left.empty() && steady_clock().now() < end) {
      gone(left.front(), end - steady_clock().now());
      left = marked_processes(mark);
    }
    EXPECT_TRUE(left.empty()) << join(left, " ");
  }
  static void let_pass(int ms) { ::poll(nullptr, 0, ms); }
};
INSTANTIATE_TEST_SUITE_P(Each, Fault,
                         ::testing::Values(Target{"launch_ps", 30}, Target{"launch", 150}));

TEST_P(Fault, AKilledLauncherLeavesNothingAtAnyMoment) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    Workplace place;
    LauncherProcess launcher(place, GetParam().launcher, job(place));
    let_pass(static_cast<int>(random() % static_cast<unsigned>(GetParam().latest_ms)));
    launcher.signal(SIGKILL);
    EXPECT_EQ(launcher.wait(), -SIGKILL);
    expect_nothing_left(place);
  }
}

TEST_P(Fault, AnyKilledProcessEndsTheJobAtAnyMoment) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    Workplace place;
    LauncherProcess launcher(place, GetParam().launcher, job(place));
    let_pass(static_cast<int>(random() % static_cast<unsigned>(GetParam().latest_ms)));
    std::vector<pid_t> victims;
    while (victims.empty()) victims = descendants_of(launcher.pid());
    ::kill(victims[random() % victims.size()], SIGKILL);
    EXPECT_EQ(launcher.wait(seconds(5)), 1) << launcher.output();
    expect_nothing_left(place);
  }
}

TEST_P(Fault, AnyKilledProcessIsARestartAtAnyMoment) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    Workplace place;
    auto arguments = job(place);
    place.script("[ $FLEET_RESTARTS = 1 ] || exec sleep 1000");
    arguments.insert(arguments.begin(), {"--max_restarts", "1"});
    LauncherProcess launcher(place, GetParam().launcher, arguments);
    let_pass(static_cast<int>(random() % static_cast<unsigned>(GetParam().latest_ms)));
    std::vector<pid_t> victims;
    while (victims.empty()) victims = descendants_of(launcher.pid());
    ::kill(victims[random() % victims.size()], SIGKILL);
    EXPECT_EQ(launcher.wait(seconds(10)), 0) << launcher.output();
    EXPECT_NE(launcher.output().find("attempt 2 of 2 begins "), std::string::npos);
    expect_nothing_left(place);
  }
}

TEST_P(Fault, AnyStoppedProcessEndsTheJobAtAnyMoment) {
  for (int seed = 0; seed < kStopSeeds; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    Workplace place;
    auto arguments = job(place);
    arguments.insert(arguments.begin(), {"--heartbeat_timeout", "1"});
    LauncherProcess launcher(place, GetParam().launcher, arguments);
    let_pass(static_cast<int>(random() % static_cast<unsigned>(GetParam().latest_ms)));
    std::vector<pid_t> victims;
    while (victims.empty()) victims = descendants_of(launcher.pid());
    ::kill(victims[random() % victims.size()], SIGSTOP);
    EXPECT_EQ(launcher.wait(seconds(6)), 1) << launcher.output();
    expect_nothing_left(place);
  }
}

}  // namespace
}  // namespace fleet::launch::testing

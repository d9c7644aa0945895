// Jobs of real processes that fail and are started again.
#include "launch/restarts/attempts.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/strings.h"
#include "launch/process/process_tree.h"
#include "tests/launch/job_checks.h"
#include "tests/launch/launcher_process.h"
#include "tests/testing/paths.h"

namespace fleet::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The name of the member that runs a script: worker0, server0, and the attempt.
constexpr const char* kName = R"(
case "$TRAINING_ROLE" in PSERVER) me=server;; *) me="worker$PADDLE_TRAINER_ID";; esac
say() { echo "$me.$FLEET_RESTARTS $1" > $MAILBOX; }
step() { echo "progress step=$1" >&$FLEET_PROGRESS_FD; }
)";

// A job of two workers; `launch_ps` adds a server, which ends with them.
std::vector<std::string> job(const std::string& launcher, const Workplace& place,
                             std::vector<std::string> options, const std::string& body) {
  const bool servers = launcher == "launch_ps";
  const auto add = [&options](std::initializer_list<std::string> more) {
    options.insert(options.end(), more);
  };
  if (servers) {
    add({"--worker_num", "2", "--server_num", "1", "--server_grace", "0.1"});
  } else {
    add({"--nproc_per_node", "2"});
  }
  add({place.script(kName + body)});
  return options;
}

// A launcher whose output is read while it runs.
class WatchedLauncher {
 public:
  WatchedLauncher(const Workplace& place, const std::string& name,
                  const std::vector<std::string>& arguments) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading_ = FileDescriptor(ends[0]);
    const FileDescriptor writing(ends[1]);
    launcher_ = std::make_unique<LauncherProcess>(place, name, arguments, Environment(), ends[1]);
  }
  LauncherProcess& process() { return *launcher_; }
  // Reads until `text` was said; everything so far.
  const std::string& until(const std::string& text) {
    for (char byte = 0; said_.find(text) == std::string::npos; said_ += byte) {
      if (::read(reading_.get(), &byte, 1) == 1) continue;
      ADD_FAILURE() << "never said: " << text << "\n" << said_;
      break;
    }
    return said_;
  }
  const std::string& all() {
    for (char byte = 0; ::read(reading_.get(), &byte, 1) == 1;) said_ += byte;
    return said_;
  }

 private:
  FileDescriptor reading_;
  std::unique_ptr<LauncherProcess> launcher_;
  std::string said_;
};

struct Kind {
  const char* name;
  const char* launcher;
  std::vector<std::string> options;
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class RestartedJob : public ::testing::TestWithParam<Kind> {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> options,
                                     const std::string& body) const {
    options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
    return job(GetParam().launcher, place_, std::move(options), body);
  }
  Workplace place_;
};
INSTANTIATE_TEST_SUITE_P(Each, RestartedJob,
                         ::testing::Values(Kind{"servers", "launch_ps", {}},
                                           Kind{"sockets", "launch", {"--collectives", "sockets"}},
                                           Kind{"mpi", "launch", {"--collectives", "mpi"}}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(RestartedJob, GoesOnUntilItEndsWell) {
  const Environment outer = variable("FLEET_RESTARTS", "9");
  LauncherProcess launcher(place_, GetParam().launcher,
                           arguments({"--max_restarts", "3", "--resume", "/my/checkpoint"}, R"(
env; [ $FLEET_RESTARTS -ge 2 ] && exit 0
[ $me = worker1 ] || exec sleep 1000
step 1$FLEET_RESTARTS; printf 'the reason of %d' $FLEET_RESTARTS; exit 3)"),
                           outer);
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("attempt 2 of 4 begins "), HasSubstr("attempt 3 of 4 begins "),
                    HasSubstr(" after the failure: worker 1 failed with exit code 3\n"),
                    HasSubstr("| the reason of 0\n"), HasSubstr("| the reason of 1\n"),
                    HasSubstr("ended well after 2 restarts ("), HasSubstr(" 0 steps repeated)")));
  const std::string log = place_.read("logs/workerlog.1");
  EXPECT_THAT(log, AllOf(HasSubstr("\nthe reason of 0\n== attempt 2 of 4, worker 1 failed with "
                                   "exit code 3\n"),
                         HasSubstr("\nthe reason of 1\n== attempt 3 of 4, worker 1 failed with "
                                   "exit code 3\n")));
  EXPECT_THAT(values_in(log, "FLEET_RESTARTS"), ElementsAre("0", "1", "2"));
  EXPECT_THAT(values_in(log, "FLEET_RESUME"), ElementsAre("/my/checkpoint", "latest", "latest"));
  expect_all_different(values_in(log, "FLEET_JOB_ID"), 3);
  expect_all_different(values_in(log, "FLEET_LAUNCH_ID"), 3);
  const auto secrets = values_in(log, "FLEET_JOB_SECRET_FILE");
  expect_all_different(secrets, 3);
  for (const std::string& file : secrets) EXPECT_FALSE(std::filesystem::exists(file)) << file;
  const bool servers = std::string(GetParam().launcher) == "launch_ps";
  expect_all_different(
      values_in(log, servers ? "PADDLE_PSERVERS_IP_PORT_LIST" : "PADDLE_TRAINER_ENDPOINTS"), 3);
  expect_nothing_left(place_);
}

TEST_P(RestartedJob, NamesAKilledProcessAndLeavesNothing) {
  const std::string victim = std::string(GetParam().name) == "servers" ? "server" : "worker1";
  LauncherProcess launcher(place_, GetParam().launcher, arguments({"--max_restarts", "1"}, R"(
[ $FLEET_RESTARTS = 1 ] && exit 0
say $$; exec sleep 1000)"));
  const auto pids = place_.messages(victim == "server" ? 3 : 2);
  ::kill(to_pid(pids.at(victim + ".0")), SIGKILL);
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr(victim == "server" ? "server 0 (pid " : "worker 1 (pid "),
                    HasSubstr("was killed by SIGKILL"), HasSubstr("attempt 2 of 2 begins ")));
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
  expect_nothing_left(place_);
}

TEST_P(RestartedJob, IsGivenUpWhenItDiesAtItsStart) {
  LauncherProcess launcher(
      place_, GetParam().launcher,
      arguments({"--max_restarts", "9"}, "[ $me = worker0 ] || exec sleep 1000; exit 3"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("attempt 3 of 10 begins in 1.0 s\n"), Not(HasSubstr("attempt 4")),
                    HasSubstr("not started again: it died 3 times at the same place: within 5 s")));
  expect_nothing_left(place_);
}

TEST_P(RestartedJob, EndsWhenItIsInterrupted) {
  LauncherProcess launcher(place_, GetParam().launcher,
                           arguments({"--max_restarts", "9"}, "say $$; exec sleep 1000"));
  const auto pids = place_.messages(std::string(GetParam().name) == "servers" ? 3 : 2);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143) << launcher.output();
  EXPECT_THAT(launcher.output(), Not(HasSubstr("attempt")));
  expect_nothing_left(place_);
}

TEST_P(RestartedJob, EndsWithItsLauncher) {
  LauncherProcess launcher(place_, GetParam().launcher, arguments({"--max_restarts", "9"}, R"(
[ $FLEET_RESTARTS = 0 ] && exit 4
say $FLEET_JOB_SECRET_FILE; exec sleep 1000)"));
  const auto secrets = place_.messages(2);
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), -SIGKILL);
  for (const pid_t pid : marked_processes("MAILBOX=" + place_.path("mailbox"))) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
  const TimePoint end = steady_clock().now() + seconds(5);
  const std::string secret(trim(secrets.begin()->second));
  while (std::filesystem::exists(secret) && steady_clock().now() < end) ::usleep(1000);
  EXPECT_FALSE(std::filesystem::exists(secret));
}

TEST(Restarts, OverMpiMeetAgain) {
  Workplace place;
  const std::string program = fleet::testing::binary_path("bin/mpi_rank_program");
  LauncherProcess launcher(
      place, "launch",
      job("launch", place, {"--max_restarts", "1"},
          "[ $FLEET_RESTARTS = 1 ] && exec '" + program + "'\n[ $me = worker0 ] && exit 7\n" +
              "exec '" + program + "' hang"));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(place.read("logs/workerlog.1"), HasSubstr("\nrank 1 of 2, sum 1\n"));
  EXPECT_THAT(place.read("logs/mpirun.log"),
              HasSubstr("== attempt 2 of 2, worker 0 failed with exit code 7\n"));
}

TEST(Restarts, FollowAnAgentThatIsKilled) {
  Workplace place;
  LauncherProcess launcher(place, "launch",
                           job("launch", place, {"--max_restarts", "1"},
                               "[ $FLEET_RESTARTS = 1 ] || { say $PPID; exec sleep 1000; }"));
  const auto agents = place.messages(2);
  ::kill(to_pid(agents.at("worker1.0")), SIGKILL);
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(),
              HasSubstr(str_cat("after the failure: worker 1 was lost: its agent (pid ",
                                trim(agents.at("worker1.0")), ") was killed\n")));
  expect_nothing_left(place);
}

TEST(Restarts, FollowAProcessThatIsStopped) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "1", "--heartbeat_timeout", "0.2"},
          "[ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }"));
  const auto pids = place.messages(3);
  ::kill(to_pid(pids.at("worker0.0")), SIGSTOP);
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(), HasSubstr("after the failure: worker 0 was stopped (SIGSTOP"));
  expect_nothing_left(place);
}

TEST(Restarts, KeepPortsThatAreGivenAndNumberTheCallersJobId) {
  Workplace place;
  std::string port;
  {
    const PortReservation free = PortReservation::any("127.0.0.1", 1);
    port = str_cat(free.endpoints().front().port);
  }
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "2", "--start_port", port},
          "env; [ $FLEET_RESTARTS = 2 ] && exit 0; [ $me = server ] && exit 3; exec sleep 1000"),
      variable("FLEET_JOB_ID", "mine"));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  const std::string log = place.read("logs/serverlog.0");
  EXPECT_THAT(values_in(log, "PADDLE_PORT"), ElementsAre(port, port, port));
  EXPECT_THAT(values_in(log, "FLEET_JOB_ID"), ElementsAre("mine", "mine-r1", "mine-r2"));
}

TEST(Restarts, TheFirstAttemptKeepsTheCallersResume) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "1"}, "env; [ $FLEET_RESTARTS = 1 ]"),
      variable("FLEET_RESUME", "none"));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(values_in(place.read("logs/workerlog.0"), "FLEET_RESUME"),
              ElementsAre("none", "latest"));
}

TEST(Restarts, EndWithTheBudget) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "1"}, "step 1$FLEET_RESTARTS; exit 3"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("attempt 2 of 2 begins"),
                                       HasSubstr("not started again: the one restart is used")));
}

TEST(Restarts, GiveUpWhatDiesAtTheSameStep) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "9", "--json"},
          "[ $me = server ] && exec sleep 1000; step 57; say $$; exec sleep 1000"));
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto pids = place.messages(2);
    ::kill(to_pid(pids.begin()->second), SIGKILL);
  }
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              HasSubstr("it died 4 times at the same place: no attempt got beyond step 57"));
  expect_nothing_left(place);
}

TEST(Restarts, AreNoneAfterWrongUsage) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps",
                           job("launch_ps", place, {"--max_restarts", "9"}, "exit 2"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(Not(HasSubstr("attempt")), HasSubstr("not started again: exit code 2 says")));
}

TEST(Restarts, AreNoneAfterAValueThatIsNotFinite) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps", job("launch_ps", place, {"--max_restarts", "9"}, R"(
[ $me = server ] && exec sleep 1000
echo 'progress step=3 nonfinite=loss nonfinite_variable=x nonfinite_value=nan nonfinite_step=2' \
  >&$FLEET_PROGRESS_FD; exit 1)"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("'x' is nan at step 2"), Not(HasSubstr("attempt")),
                    HasSubstr("not started again: a value is not finite, and the same steps")));
}

TEST(Restarts, AreNoneAfterTheEndOfStdin) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "9", "--end_with_stdin"}, "exec sleep 1000"));
  EXPECT_EQ(launcher.wait(), 143);
  EXPECT_THAT(launcher.output(), Not(HasSubstr("attempt")));
}

// The waits are 0, 1 and 2 s: the second attempt and the third get no further than the first.
TEST(Restarts, CtrlCEndsTheWaitAtOnce) {
  Workplace place;
  WatchedLauncher launcher(place, "launch_ps",
                           job("launch_ps", place, {"--max_restarts", "9"}, "step 5; exit 3"));
  launcher.until("attempt 4 of 10 begins in 2.0 s\n");
  const TimePoint begin = steady_clock().now();
  launcher.process().signal(SIGINT);
  EXPECT_EQ(launcher.process().wait(), 130);
  EXPECT_LT(steady_clock().now() - begin, milliseconds(1500));
  EXPECT_THAT(launcher.all(), AllOf(HasSubstr("SIGINT: not started again"),
                                    Not(HasSubstr("attempt 4 of 10 begins 2"))));
  expect_nothing_left(place);
}

TEST(Restarts, NameTheCulpritOfTheAttemptThatFailed) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps", job("launch_ps", place, {"--max_restarts", "1"}, R"(
case $me.$FLEET_RESTARTS in
worker0.0) echo 'worker 1 was lost in phase sending at step 12: no heartbeat'; exit 1;;
worker0.1) echo 'a reason of its own'; exit 5;;
esac
exec sleep 1000)"));
  EXPECT_EQ(launcher.wait(), 1);
  const std::string said = launcher.output();
  const std::string second = said.substr(said.find("attempt 2 of 2 begins "));
  EXPECT_THAT(said, HasSubstr(" after the failure: worker 1 is the cause, as another process"));
  EXPECT_THAT(second, AllOf(HasSubstr("worker 0 (pid "), HasSubstr("failed with exit code 5"),
                            HasSubstr("| a reason of its own\n"), Not(HasSubstr("| worker 1")),
                            Not(HasSubstr("worker 0 says"))));
}

TEST(Restarts, AreCountedInJsonWithWhatTheyCost) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps",
                           job("launch_ps", place, {"--max_restarts", "2", "--json"}, R"(
[ $me = worker0 ] || exec sleep 1000
case $FLEET_RESTARTS in 0) step 1; step 20; exit 3;; esac
step 16; exit 4)"));
  EXPECT_EQ(launcher.wait(), 1);
  std::vector<nlohmann::json> lines;
  for (const std::string& line : split(launcher.output(), '\n')) {
    if (line.starts_with('{')) lines.push_back(nlohmann::json::parse(line));
  }
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(lines.front().at("restarts"), 0);
  for (size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_FALSE(lines[i].contains("final"));
  const nlohmann::json& last = lines.back();
  EXPECT_TRUE(last.at("final"));
  EXPECT_EQ(last.at("restarts"), 2);
  EXPECT_EQ(last.at("steps_repeated"), 5 + 1);
  const nlohmann::json& first = last.at("restarted").at(0);
  EXPECT_EQ(first.at("reason"), "worker 0 failed with exit code 3");
  EXPECT_EQ(first.at("steps_repeated"), 5);
  EXPECT_GT(first.at("lost_s"), 0);
  EXPECT_GT(last.at("restarted").at(1).at("t"), first.at("t"));
  EXPECT_DOUBLE_EQ(
      last.at("restart_lost_s").get<double>(),
      first.at("lost_s").get<double>() + last.at("restarted").at(1).at("lost_s").get<double>());
}

TEST(Restarts, ShowTheOutputOfEachAttemptOnce) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      job("launch_ps", place, {"--max_restarts", "1", "--tee"},
          "[ $me = worker0 ] || exec sleep 1000; echo line of $FLEET_RESTARTS; exit 3"));
  EXPECT_EQ(launcher.wait(), 1);
  const std::string said = launcher.output();
  for (const char* line : {"[worker 0] line of 0\n", "[worker 0] line of 1\n"}) {
    const size_t at = said.find(line);
    ASSERT_NE(at, std::string::npos) << line << said;
    EXPECT_EQ(said.find(line, at + 1), std::string::npos) << line << said;
  }
  EXPECT_THAT(said, Not(HasSubstr("[worker 0] ==")));
}

}  // namespace
}  // namespace fleet::launch::testing

// launch --hosts over two hosts, which are addresses of this machine: jobs of real processes that
// lose processes, launchers and hosts, and go on; and jobs that are told to end.
#include "launch/hosts/ssh_launchers.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strings.h"
#include "launch/process/process_tree.h"
#include "tests/launch/hosts/two_addresses.h"
#include "tests/launch/job_checks.h"

namespace fleet::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Worker 0 and the server of launch_ps are on the first host, worker 1 is on the second.
class SshJob : public ::testing::TestWithParam<const char*> {
 protected:
  SshJob() {
    std::ofstream(place_.path("ssh")) << "#!/bin/sh\nhost=$1; shift\n"
                                      << "[ ! -e " << place_.path("down")
                                      << ".$host ] || { echo no route to $host >&2; exit 255; }\n"
                                      << "exec sh -c \"$*\"\n";
    std::filesystem::permissions(place_.path("ssh"), std::filesystem::perms::owner_all);
  }

  bool servers() const { return std::string(GetParam()) == "launch_ps"; }
  std::vector<std::string> job(std::vector<std::string> options, const std::string& body) const {
    const auto add = [&options](std::initializer_list<std::string> more) {
      options.insert(options.end(), more);
    };
    add({"--hosts", kBoth, "--ssh", place_.path("ssh")});
    if (servers()) {
      add({"--worker_num", "2", "--server_num", "1", "--start_port", ports_.first()});
    } else {
      add({"--nproc_per_node", "1", "--started_port", ports_.first()});
    }
    add({place_.script(kHostScript + body)});
    return options;
  }
  // The ssh of a host, or the launcher that it started: the same process here.
  pid_t launcher_of(const LauncherProcess& outer, const std::string& host) const {
    for (const pid_t pid : children_of(outer.pid())) {
      if (command_line_of(pid).find("--node_ip=" + host) != std::string::npos) return pid;
    }
    ADD_FAILURE() << "no launcher of " << host;
    return -1;
  }
  void bring_down(const std::string& host) { std::ofstream(place_.path("down." + host)); }
  void bring_up(const std::string& host) { std::filesystem::remove(place_.path("down." + host)); }

  Workplace place_;
  FreePorts ports_;
};
INSTANTIATE_TEST_SUITE_P(Each, SshJob, ::testing::Values("launch", "launch_ps"),
                         [](const auto& launcher) { return std::string(launcher.param); });

TEST_P(SshJob, IsStartedAgainOnAllHostsTogether) {
  LauncherProcess launcher(place_, GetParam(),
                           job({"--max_restarts", "3", "--resume", "/my/checkpoint"}, R"(
env; cat $FLEET_JOB_SECRET_FILE | sed 's/^/SECRET=/'; [ $FLEET_RESTARTS -ge 2 ] && exit 0
[ $me = worker1 ] || { been; exec sleep 1000; }
await worker0; step 1$FLEET_RESTARTS; printf 'the reason of %d' $FLEET_RESTARTS; exit 3)"));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("attempt 2 of 4 begins "), HasSubstr("attempt 3 of 4 begins "),
                    HasSubstr(" after the failure: worker 1 failed with exit code 3\n"),
                    HasSubstr("| the reason of 0\n"), HasSubstr("| the reason of 1\n"),
                    HasSubstr("ended well on 2 hosts after 2 restarts (")));
  const std::string first = place_.read("logs/workerlog.0");
  const std::string second = place_.read("logs/workerlog.1");
  EXPECT_THAT(first, HasSubstr("\n== attempt 3 of 4, worker 1 failed with exit code 3\n"));
  for (const char* variable : {"FLEET_JOB_ID", "SECRET"}) {
    const auto values = values_in(first, variable);
    expect_all_different(values, 3);
    EXPECT_EQ(values_in(second, variable), values) << variable;
  }
  EXPECT_THAT(values_in(second, "FLEET_RESTARTS"), ElementsAre("0", "1", "2"));
  EXPECT_THAT(values_in(first, "FLEET_RESUME"), ElementsAre("/my/checkpoint", "latest", "latest"));
  expect_nothing_left(place_);
}

TEST_P(SshJob, GoesOnWithoutAProcessThatIsKilled) {
  std::vector<std::string> victims = {"worker0", "worker1"};
  if (servers()) victims.emplace_back("server");
  for (const std::string& victim : victims) {
    LauncherProcess launcher(
        place_, GetParam(),
        job({"--max_restarts", "1"}, "[ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }"));
    const auto pids = place_.messages(servers() ? 3 : 2);
    ::kill(to_pid(pids.at(victim + ".0")), SIGKILL);
    EXPECT_EQ(launcher.wait(), 0) << launcher.output();
    EXPECT_THAT(launcher.output(),
                AllOf(HasSubstr("after the failure: "), HasSubstr(" was killed by SIGKILL\n"),
                      HasSubstr("attempt 2 of 2 begins ")));
    for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
    expect_nothing_left(place_);
  }
}

TEST_P(SshJob, TakesAHostInAgainWhenItsLauncherIsKilled) {
  for (const std::string host : {kFirst, kSecond}) {
    LauncherProcess launcher(
        place_, GetParam(),
        job({"--max_restarts", "1"}, "[ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }"));
    const auto pids = place_.messages(servers() ? 3 : 2);
    bring_down(host);
    ::kill(launcher_of(launcher, host), SIGKILL);
    launcher.until("no route to " + host);
    bring_up(host);
    EXPECT_EQ(launcher.wait(), 0) << launcher.output();
    EXPECT_THAT(launcher.output(),
                AllOf(HasSubstr("waits for host " + host),
                      HasSubstr("after the failure: host " + host + " was lost: ssh to host "),
                      HasSubstr("ended well on 2 hosts after 1 restart (")));
    for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
    expect_nothing_left(place_);
  }
}

TEST_P(SshJob, IsGivenUpWhenAHostDoesNotComeBack) {
  LauncherProcess launcher(
      place_, GetParam(),
      job({"--max_restarts", "9", "--host_wait", "1.5"}, "say $$; exec sleep 1000"));
  place_.messages(servers() ? 3 : 2);
  bring_down(kSecond);
  ::kill(launcher_of(launcher, kSecond), SIGKILL);
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              HasSubstr(str_cat("host ", kSecond, " did not come back within 1.5 s: ssh to host ",
                                kSecond, " failed with exit code 255")));
  expect_nothing_left(place_);
}

TEST_P(SshJob, TakesAHostThatDoesNotAnswerForLost) {
  LauncherProcess launcher(place_, GetParam(),
                           job({"--max_restarts", "1", "--heartbeat_timeout", "0.5"},
                               "[ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }"));
  place_.messages(servers() ? 3 : 2);
  ::kill(launcher_of(launcher, kSecond), SIGSTOP);
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(), HasSubstr(str_cat("after the failure: host ", kSecond,
                                                   " was lost: it does not answer")));
  expect_nothing_left(place_);
}

TEST_P(SshJob, EndsWithItsLauncher) {
  LauncherProcess launcher(place_, GetParam(),
                           job({"--max_restarts", "9"}, "say $$; exec sleep 1000"));
  place_.messages(servers() ? 3 : 2);
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), -SIGKILL);
  for (const pid_t pid : marked_processes("MAILBOX=" + place_.path("mailbox"))) {
    EXPECT_TRUE(gone(pid)) << pid;
  }
}

TEST_P(SshJob, EndsWithTheBudget) {
  LauncherProcess launcher(place_, GetParam(),
                           job({"--max_restarts", "1"}, "step 1$FLEET_RESTARTS; exit 3"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("attempt 2 of 2 begins"),
                                       HasSubstr("not started again: the one restart is used"),
                                       HasSubstr(" failed with exit code 3\n")));
  expect_nothing_left(place_);
}

TEST_P(SshJob, IsNotStartedAgainAfterWrongUsage) {
  LauncherProcess launcher(place_, GetParam(), job({"--max_restarts", "9"}, "exit 2"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(Not(HasSubstr("attempt")), HasSubstr("not started again: exit code 2 says")));
}

TEST_P(SshJob, NamesAHostThatItNeverReached) {
  bring_down(kSecond);
  LauncherProcess launcher(place_, GetParam(), job({"--max_restarts", "9"}, "exec sleep 1000"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(
      launcher.output(),
      AllOf(HasSubstr("not started again: the job has not begun"),
            HasSubstr(str_cat("failed: ssh to host ", kSecond, " failed with exit code 255"))));
  expect_nothing_left(place_);
}

TEST_P(SshJob, TellsOfAllHostsInJson) {
  LauncherProcess launcher(place_, GetParam(), job({"--max_restarts", "2", "--json"}, R"(
[ $me = server ] && exec sleep 1000
[ $me = worker0 ] && { step 21; been; exec sleep 1000; }
await worker0
case $FLEET_RESTARTS in 0) step 1; step 20; exit 3;; esac
step 16; exit 4)"));
  EXPECT_EQ(launcher.wait(), 1);
  const std::string said = launcher.output();
  const size_t at = said.rfind("\n{");
  ASSERT_NE(at, std::string::npos) << said;
  const auto last = nlohmann::json::parse(said.substr(at + 1, said.find('\n', at + 1) - at - 1));
  EXPECT_TRUE(last.at("final"));
  EXPECT_EQ(last.at("worker_num"), 2);
  EXPECT_EQ(last.at("server_num"), servers() ? 1 : 0);
  EXPECT_EQ(last.at("workers").size(), 2U) << "of both hosts";
  EXPECT_GE(last.at("restarts"), 1);
  EXPECT_EQ(last.at("restarted").at(0).at("reason"), "worker 1 failed with exit code 3");
  EXPECT_GT(last.at("restart_lost_s"), 0);
}

TEST_P(SshJob, SavesOnAllHostsWhenItIsToldToEnd) {
  LauncherProcess launcher(place_, GetParam(),
                           job({"--json", "--max_restarts", "3"}, kSavingScript));
  place_.messages(2);
  launcher.until("\"step\":5.0");
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), kExitRequeue) << launcher.output();
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("SIGTERM: workers save and end"), Not(HasSubstr("attempt")),
                    HasSubstr("start it again to go on")));
  for (const char* worker : {"worker0", "worker1"}) {
    EXPECT_TRUE(std::filesystem::exists(place_.path("mailbox") + ".saved." + worker)) << worker;
  }
  if (servers()) {
    EXPECT_THAT(place_.read("logs/serverlog.0"), Not(HasSubstr("told to end")));
  }
  expect_nothing_left(place_);
}

TEST_P(SshJob, DoesNotWaitForWorkersThatDoNotSave) {
  LauncherProcess launcher(place_, GetParam(), job({}, "say $$; exec sleep 1000"));
  place_.messages(servers() ? 3 : 2);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM) << launcher.output();
  expect_nothing_left(place_);
}

TEST_P(SshJob, EndsAtOnceAtTheSecondSignal) {
  LauncherProcess launcher(place_, GetParam(), job({"--json"}, R"(
trap '' TERM; echo "progress completed=0 saves=1 step=5" >&$FLEET_PROGRESS_FD
say $$; while :; do sleep 0.05; done)"));
  place_.messages(servers() ? 3 : 2);
  launcher.until("\"step\":5.0");
  launcher.signal(SIGTERM);
  launcher.until("workers save and end");
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM) << launcher.output();
  expect_nothing_left(place_);
}

// Servers on a host of their own wait for the workers of the other.
TEST(SshJobs, ServersWithoutWorkersStayUntilWorkersHaveSaved) {
  Workplace place;
  const FreePorts ports;
  std::ofstream(place.path("ssh")) << "#!/bin/sh\nshift; exec sh -c \"$*\"\n";
  std::filesystem::permissions(place.path("ssh"), std::filesystem::perms::owner_all);
  std::string body = kSavingScript;
  body.replace(body.find(" || [ ! -e $MAILBOX.saved.worker1 ]"),
               std::string(" || [ ! -e $MAILBOX.saved.worker1 ]").size(), "");
  LauncherProcess launcher(
      place, "launch_ps",
      {"--json", "--hosts", kBoth, "--ssh", place.path("ssh"), "--worker_num", "1", "--endpoints",
       str_cat(kSecond, ":", ports.first()), place.script(kHostScript + body)});
  place.messages(1);
  launcher.until("\"step\":5.0");
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), kExitRequeue) << launcher.output();
  EXPECT_THAT(launcher.output(), HasSubstr("SIGTERM: workers of other hosts save and end"));
  EXPECT_THAT(place.read("logs/serverlog.0"), Not(HasSubstr("told to end")));
  expect_nothing_left(place);
}

}  // namespace
}  // namespace fleet::launch::testing

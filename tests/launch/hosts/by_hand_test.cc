// Jobs whose launchers are started by hand on two hosts, which are addresses of this machine.
#include "launch/hosts/by_hand.h"

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "base/error.h"
#include "base/strings.h"
#include "tests/launch/hosts/two_addresses.h"
#include "tests/launch/job_checks.h"

namespace fleet::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Form {
  const char* name;
  const char* launcher;
  bool numbered;
};
void PrintTo(const Form& form, std::ostream* out) {
  *out << form.name;
}

// Worker 0, and the server where there is one, are on the first host, worker 1 on the second.
class ByHand : public ::testing::TestWithParam<Form> {
 protected:
  bool servers() const { return std::string(GetParam().launcher) == "launch_ps"; }
  size_t processes() const { return servers() ? 3 : 2; }

  // The launcher of a host; all processes report to the first workplace.
  std::unique_ptr<LauncherProcess> start(int host, std::vector<std::string> options,
                                         const std::string& body,
                                         const Environment& extra = Environment()) {
    const auto add = [&options](std::initializer_list<std::string> more) {
      options.insert(options.end(), more);
    };
    if (GetParam().numbered) {
      add({"--nnodes", "2", "--node_rank", str_cat(host), "--master_addr", kFirst, "--master_port",
           ports_.first()});
    } else {
      add({"--cluster_node_ips", kBoth, "--node_ip", host == 0 ? kFirst : kSecond,
           "--launcher_port", meeting_.first()});
      add({servers() ? "--start_port" : "--started_port", ports_.first()});
    }
    if (servers()) {
      add({"--worker_num", "2", "--server_num", "1"});
    } else {
      add({"--nproc_per_node", "1"});
    }
    add({places_[0].script(kHostScript + body)});
    Environment environment(
        {{"FLEET_JOB_SECRET", "a-secret-of-two-hosts-in-a-test"}, {"FLEET_JOB_ID", "mine"}});
    environment.set("MAILBOX", places_[0].path("mailbox"));
    for (const auto& [name, value] : extra.all()) environment.set(name, value);
    return std::make_unique<LauncherProcess>(places_[host], GetParam().launcher, options,
                                             environment);
  }
  std::string second_host() const { return GetParam().numbered ? "node 1" : "host 127.0.0.3"; }
  void expect_nothing_runs() const { expect_nothing_left(places_[0]); }

  Workplace places_[2];
  FreePorts ports_;
  FreePorts meeting_;
};
INSTANTIATE_TEST_SUITE_P(Each, ByHand,
                         ::testing::Values(Form{"servers", "launch_ps", false},
                                           Form{"ranks", "launch", false},
                                           Form{"numbered", "launch", true}),
                         [](const auto& form) { return std::string(form.param.name); });

TEST_P(ByHand, IsStartedAgainOnAllHostsTogether) {
  for (const std::string victim : {"worker0", "worker1"}) {
    const std::string body = "env; [ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }";
    const std::vector<std::string> options = {"--max_restarts", "1"};
    const auto first = start(0, options, body);
    const auto second = start(1, options, body);
    const auto pids = places_[0].messages(processes());
    ::kill(to_pid(pids.at(victim + ".0")), SIGKILL);
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    EXPECT_THAT(first->output(),
                AllOf(HasSubstr("attempt 2 of 2 begins "), HasSubstr(" was killed by SIGKILL\n"),
                      HasSubstr("ended well on 2 hosts after 1 restart (")));
    for (const int host : {0, 1}) {
      const std::string log = places_[host].read(str_cat("logs/workerlog.", host));
      EXPECT_THAT(values_in(log, "FLEET_RESTARTS"), ElementsAre("0", "1"));
      EXPECT_THAT(values_in(log, "FLEET_JOB_ID"), ElementsAre("mine", "mine-r1"));
    }
    for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
    expect_nothing_runs();
  }
}

TEST_P(ByHand, GoesOnWithALauncherThatIsStartedAgain) {
  const std::string body = "[ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }";
  const std::vector<std::string> options = {"--max_restarts", "1"};
  const auto first = start(0, options, body);
  auto second = start(1, options, body);
  const auto pids = places_[0].messages(processes());
  second->signal(SIGKILL);
  EXPECT_EQ(second->wait(), -SIGKILL);
  first->until("waits for " + second_host());
  second = start(1, options, body);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  EXPECT_THAT(first->output(), HasSubstr("after the failure: " + second_host() + " was lost: "));
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
  expect_nothing_runs();
}

// As where the first one's end is not yet known.
TEST_P(ByHand, ASecondLauncherOfAHostWaitsForItsPlace) {
  const std::string body = "[ $FLEET_RESTARTS = 1 ] || { say $$; exec sleep 1000; }";
  const std::vector<std::string> options = {"--max_restarts", "1"};
  const auto first = start(0, options, body);
  const auto second = start(1, options, body);
  places_[0].messages(processes());
  const auto spare = start(1, options, body);
  EXPECT_FALSE(gone(spare->pid(), milliseconds(300))) << spare->output();
  second->signal(SIGKILL);
  EXPECT_EQ(second->wait(), -SIGKILL);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(spare->wait(), 0) << spare->output();
  expect_nothing_runs();
}

TEST_P(ByHand, GoesOnWithTheFirstLauncherStartedAgain) {
  const std::string mark = "[ -e $MAILBOX.again ] && exit 0; say $$; exec sleep 1000";
  const std::vector<std::string> options = {"--max_restarts", "1"};
  auto first = start(0, options, mark);
  const auto second = start(1, options, mark);
  places_[0].messages(processes());
  first->signal(SIGKILL);
  EXPECT_EQ(first->wait(), -SIGKILL);
  second->until("the launcher of the first node was lost");
  std::ofstream(places_[0].path("mailbox") + ".again");
  first = start(0, options, mark);
  EXPECT_EQ(first->wait(), 0) << first->output();
  EXPECT_EQ(second->wait(), 0) << second->output();
  expect_nothing_runs();
}

TEST_P(ByHand, IsGivenUpWhenALauncherDoesNotComeBack) {
  for (const int lost : {0, 1}) {
    const std::vector<std::string> options = {"--max_restarts", "9", "--host_wait", "1"};
    const auto first = start(0, options, "say $$; exec sleep 1000");
    const auto second = start(1, options, "say $$; exec sleep 1000");
    places_[0].messages(processes());
    const auto& killed = lost == 0 ? first : second;
    const auto& other = lost == 0 ? second : first;
    killed->signal(SIGKILL);
    EXPECT_EQ(killed->wait(), -SIGKILL);
    EXPECT_EQ(other->wait(), 1);
    EXPECT_THAT(other->output(),
                HasSubstr(lost == 0 ? "cannot be reached at " : "did not come back within 1.0 s"));
    expect_nothing_runs();
  }
}

TEST_P(ByHand, EndsEverywhereWithTheBudget) {
  const std::vector<std::string> options = {"--max_restarts", "1"};
  const auto first = start(0, options, "exit 3");
  const auto second = start(1, options, "exit 3");
  EXPECT_EQ(first->wait(), 1);
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(first->output(), AllOf(HasSubstr("attempt 2 of 2 begins"),
                                     HasSubstr("not started again: the one restart is used")));
  expect_nothing_runs();
}

TEST_P(ByHand, SavesEverywhereWhenOneLauncherIsToldToEnd) {
  for (const int told : {0, 1}) {
    for (const auto& entry : std::filesystem::directory_iterator(places_[0].path(""))) {
      if (entry.path().string().find(".saved.") != std::string::npos) {
        std::filesystem::remove(entry.path());
      }
    }
    const std::vector<std::string> options = {"--max_restarts", "3", "--json"};
    const auto first = start(0, options, kSavingScript);
    const auto second = start(1, options, kSavingScript);
    places_[0].messages(2);
    first->until("{\"index\":1,\"completed\":0.0");
    (told == 0 ? first : second)->signal(SIGTERM);
    EXPECT_EQ(first->wait(), kExitRequeue) << first->output();
    EXPECT_EQ(second->wait(), kExitRequeue) << second->output();
    EXPECT_THAT(first->output(), Not(HasSubstr("attempt")));
    if (servers()) {
      EXPECT_THAT(places_[0].read("logs/serverlog.0"), Not(HasSubstr("told to end")));
    }
    expect_nothing_runs();
  }
}

TEST_P(ByHand, RefusesALauncherWithAnotherSecret) {
  const std::vector<std::string> options = {"--max_restarts", "3"};
  const auto first = start(0, options, "exit 0");
  const auto second =
      start(1, options, "exit 0", variable("FLEET_JOB_SECRET", "another-secret-in-a-test"));
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(
      second->output(),
      AllOf(HasSubstr("the launcher of the first node refuses this one: "), HasSubstr("secret")));
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait(), 128 + SIGTERM);
}

TEST_P(ByHand, NamesAPortThatIsTaken) {
  const auto& port = GetParam().numbered ? ports_ : meeting_;
  const auto number = port.number();
  const PortReservation held = PortReservation::of({{kFirst, number}}, "the test");
  const auto first = start(0, {"--max_restarts", "3"}, "exit 0");
  EXPECT_EQ(first->wait(), 1);
  EXPECT_THAT(first->output(), AllOf(HasSubstr(port.first()), HasSubstr("--launcher_port")));
}

}  // namespace
}  // namespace fleet::launch::testing

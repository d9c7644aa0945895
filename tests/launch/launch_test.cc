#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/strings.h"
#include "launch/process/process_tree.h"
#include "tests/launch/launcher_process.h"
#include "tests/testing/paths.h"

namespace fleet::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kMpiProgram = fleet::testing::binary_path("bin/mpi_rank_program");
// Reports the rank and the pids of the rank and its agent, and stays, with a grandchild.
constexpr const char* kStay = R"(
setsid sh -c "echo \"grandchild$PADDLE_TRAINER_ID \$\$\" > $MAILBOX; exec sleep 1000" &
echo "agent$PADDLE_TRAINER_ID $PPID" > $MAILBOX
echo "worker$PADDLE_TRAINER_ID $$" > $MAILBOX
wait)";

std::vector<std::string> arguments(int ranks, std::vector<std::string> rest) {
  rest.insert(rest.begin(), {"--nproc_per_node", str_cat(ranks)});
  return rest;
}

pid_t mpirun_of(const LauncherProcess& launcher, const std::map<std::string, std::string>& pids) {
  const pid_t agent = to_pid(pids.at("agent0"));
  for (const pid_t child : children_of(launcher.pid())) {
    for (const pid_t grandchild : children_of(child)) {
      if (grandchild == agent) return child;
    }
  }
  return 0;
}

void expect_all_gone(const std::map<std::string, std::string>& pids, Duration limit = Duration(0)) {
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), limit)) << name;
}

class LaunchRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OnTwoCores, LaunchRanks, ::testing::Values(1, 2, 4));

TEST_P(LaunchRanks, MeetThroughMpi) {
  Workplace place;
  const int ranks = GetParam();
  LauncherProcess launcher(place, "launch", arguments(ranks, {kMpiProgram}));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output() << place.read("logs/mpirun.log");
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(place.read(str_cat("logs/workerlog.", rank)),
              str_cat("rank ", rank, " of ", ranks, ", sum ", ranks * (ranks - 1) / 2, "\n"));
  }
  EXPECT_EQ(place.read("logs/mpirun.log"), "") << "Open MPI has something to complain about";
}

TEST(Launch, GivesEachRankTheCollectiveContract) {
  Workplace place;
  const Environment outer({{"TRAINING_ROLE", "PSERVER"},
                           {"PADDLE_PSERVERS_IP_PORT_LIST", "1.1.1.1:1"},
                           {"OMPI_COMM_WORLD_RANK", "7"},
                           {"RANK", "3"},
                           {"CUDA_VISIBLE_DEVICES", "4,5,6"}});
  auto options = arguments(2, {place.script("env")});
  options.insert(options.begin(), {"--gpus", "4,6"});
  LauncherProcess launcher(place, "launch", options, outer);
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  for (const int rank : {0, 1}) {
    const std::string log = place.read(str_cat("logs/workerlog.", rank));
    EXPECT_THAT(
        log, AllOf(HasSubstr(str_cat("\nPADDLE_TRAINER_ID=", rank, "\n")),
                   HasSubstr("PADDLE_TRAINERS_NUM=2\n"),
                   HasSubstr("PADDLE_TRAINER_ENDPOINTS=127.0.0.1:"),
                   HasSubstr("PADDLE_CURRENT_ENDPOINT=127.0.0.1:"),
                   HasSubstr(str_cat("OMPI_COMM_WORLD_RANK=", rank, "\n")),
                   HasSubstr(str_cat("FLAGS_selected_gpus=", rank, "\n")),
                   HasSubstr("CUDA_VISIBLE_DEVICES=4,6\n"), HasSubstr("FLEET_JOB_SECRET_FILE=/")));
    for (const char* foreign : {"TRAINING_ROLE", "PADDLE_PSERVERS", "FLEET_AGENT", "\nRANK="}) {
      EXPECT_THAT(log, Not(HasSubstr(foreign)));
    }
  }
}

TEST(Launch, PassesEverythingAfterTheProgramVerbatim) {
  Workplace place;
  const std::string script = place.script(R"(printf '<%s>\n' "$@")");
  LauncherProcess launcher(
      place, "launch",
      arguments(2, {script, "a b", ":", "-np", "9", "", "'q\"uote'", "--nproc_per_node"}));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_EQ(place.read("logs/workerlog.1"),
            "<a b>\n<:>\n<-np>\n<9>\n<>\n<'q\"uote'>\n<--nproc_per_node>\n");
}

TEST(Launch, NamesTheRankThatFailsItsExitCodeAndItsLastLines) {
  Workplace place;
  const std::string script =
      place.script("[ $PADDLE_TRAINER_ID = 2 ] || exec sleep 1000\necho the reason; exit 9");
  LauncherProcess launcher(place, "launch", arguments(4, {script}));
  EXPECT_EQ(launcher.wait(seconds(10)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("worker 2 (pid "), HasSubstr("failed with exit code 9"),
                    HasSubstr("| the reason")));
}

TEST(Launch, AnMpiAbortIsTheFailureOfItsRank) {
  Workplace place;
  LauncherProcess launcher(place, "launch", arguments(2, {kMpiProgram, "abort"}));
  EXPECT_EQ(launcher.wait(seconds(10)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("worker 1 (pid "), HasSubstr("failed with exit code 5")));
}

TEST(Launch, AKilledRankEndsTheOtherThatWaitsForItInMpi) {
  Workplace place;
  LauncherProcess launcher(place, "launch", arguments(2, {kMpiProgram, "hang"}));
  const auto pids = place.messages(2);
  ::kill(to_pid(pids.at("worker1")), SIGKILL);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(),
              HasSubstr("worker 1 (pid " + pids.at("worker1") + ") was killed by SIGKILL"));
  expect_all_gone(pids);
}

TEST(Launch, AKilledAgentEndsTheJobAndItsRankIsNamed) {
  Workplace place;
  LauncherProcess launcher(place, "launch", arguments(2, {place.script(kStay)}));
  const auto pids = place.messages(6);
  ::kill(to_pid(pids.at("agent1")), SIGKILL);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("worker 1 (pid "),
                    HasSubstr("its agent (pid " + pids.at("agent1") + ") was killed")));
  expect_all_gone(pids);
}

TEST(Launch, AKilledMpirunEndsTheJobAndIsNamed) {
  Workplace place;
  LauncherProcess launcher(place, "launch", arguments(2, {place.script(kStay)}));
  const auto pids = place.messages(6);
  const pid_t mpirun = mpirun_of(launcher, pids);
  ASSERT_GT(mpirun, 0);
  ::kill(mpirun, SIGKILL);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(),
              HasSubstr(str_cat("mpirun (pid ", mpirun, ") was killed by SIGKILL")));
  expect_all_gone(pids);
}

TEST(Launch, NothingOutlivesALauncherThatIsKilled) {
  Workplace place;
  LauncherProcess launcher(place, "launch", arguments(2, {place.script(kStay)}));
  auto pids = place.messages(6);
  pids["mpirun"] = str_cat(mpirun_of(launcher, pids));
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), -SIGKILL);
  expect_all_gone(pids, seconds(5));
}

class StoppedProcess : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, StoppedProcess, ::testing::Values("worker1", "agent1", "mpirun"));

TEST_P(StoppedProcess, EndsTheJobAndIsNamed) {
  Workplace place;
  auto options = arguments(2, {place.script(kStay)});
  options.insert(options.begin(), {"--heartbeat_timeout", "2"});
  LauncherProcess launcher(place, "launch", options);
  auto pids = place.messages(6);
  pids["mpirun"] = str_cat(mpirun_of(launcher, pids));
  const std::string victim = pids.at(GetParam());
  ::kill(to_pid(victim), SIGSTOP);
  EXPECT_EQ(launcher.wait(seconds(7)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("(pid " + victim + ")"), HasSubstr("stopped (SIGSTOP")));
  expect_all_gone(pids);
}

// The real mpirun, in which rank 1 does something else before it becomes an agent.
Environment with_rank_1_doing(const std::string& what, const Workplace& place) {
  const std::string path = std::getenv("PATH");
  std::filesystem::create_directory(place.path("bin"));
  std::filesystem::rename(
      place.script(str_cat("PATH='", path, "'\nfor agent; do :; done\n",
                           "exec mpirun -np 2 --oversubscribe --bind-to none sh -c ",
                           "'[ $OMPI_COMM_WORLD_RANK = 0 ] || { ", what,
                           "; }; exec \"$0\"' \"$agent\"")),
      place.path("bin/mpirun"));
  return variable("PATH", place.path("bin") + ":" + path);
}

TEST(Launch, AnAgentThatIsKilledBeforeItSpeaksIsNamed) {
  Workplace place;
  const Environment mpirun = with_rank_1_doing("sleep 0.5; kill -9 $$", place);
  LauncherProcess launcher(place, "launch", arguments(2, {place.script(kStay)}), mpirun);
  const auto pids = place.messages(3);
  EXPECT_EQ(launcher.wait(seconds(10)), 1);
  EXPECT_THAT(launcher.output(), StartsWith("launch: worker 1 was lost: its agent was killed"));
  expect_all_gone(pids);
}

TEST(Launch, AnAgentThatIsStoppedBeforeItSpeaksIsNamed) {
  Workplace place;
  const Environment mpirun = with_rank_1_doing("kill -STOP $$", place);
  auto options = arguments(2, {place.script(kStay)});
  options.insert(options.begin(), {"--heartbeat_timeout", "2"});
  LauncherProcess launcher(place, "launch", options, mpirun);
  const auto pids = place.messages(3);
  EXPECT_EQ(launcher.wait(seconds(12)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(StartsWith("launch: worker 1 does not start"), HasSubstr("stopped (SIGSTOP)")));
  expect_all_gone(pids);
}

class EndingSignal : public ::testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Each, EndingSignal,
                         ::testing::Values(std::pair(SIGINT, 130), std::pair(SIGTERM, 143),
                                           std::pair(SIGHUP, 129)));

TEST_P(EndingSignal, EndsEveryProcess) {
  Workplace place;
  LauncherProcess launcher(place, "launch", arguments(2, {place.script(kStay)}));
  auto pids = place.messages(6);
  pids["mpirun"] = str_cat(mpirun_of(launcher, pids));
  launcher.signal(GetParam().first);
  EXPECT_EQ(launcher.wait(seconds(5)), GetParam().second);
  expect_all_gone(pids);
}

TEST(Launch, PassesProgressThrough) {
  Workplace place;
  const std::string script = place.script(R"(
echo "progress step=$PADDLE_TRAINER_ID" >&$FLEET_PROGRESS_FD && echo "rank$PADDLE_TRAINER_ID wrote" > $MAILBOX)");
  auto options = arguments(2, {script});
  options.insert(options.begin(), "--progress");
  LauncherProcess launcher(place, "launch", options);
  const auto said = place.messages(2);
  EXPECT_EQ(said.at("rank0"), "wrote");
  EXPECT_EQ(said.at("rank1"), "wrote");
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
}

TEST(Launch, AProgramThatTheKernelCannotRunIsAnError) {
  Workplace place;
  const std::string script = place.script("");
  ASSERT_EQ(::truncate(script.c_str(), 0), 0);
  LauncherProcess launcher(place, "launch", arguments(2, {script}));
  EXPECT_EQ(launcher.wait(seconds(10)), 1);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("could not be started"), HasSubstr(script)));
}

TEST(Launch, WithoutMpirunSaysSo) {
  Workplace place;
  const std::string script = place.script("exit 0");
  LauncherProcess launcher(place, "launch", arguments(2, {script}),
                           variable("PATH", place.path("")));
  EXPECT_NE(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("mpirun"), HasSubstr("openmpi-bin")));
}

}  // namespace
}  // namespace fleet::launch::testing

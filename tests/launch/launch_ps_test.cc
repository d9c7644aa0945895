#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pty.h>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/strings.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The name of the member that runs a script: worker0, server….
constexpr const char* kName = R"(
if [ "$TRAINING_ROLE" = PSERVER ]; then me="server$PADDLE_PORT"; else me="worker$PADDLE_TRAINER_ID"; fi
)";
// Reports the script's pid and stays.
const std::string kStay = std::string(kName) + "echo \"$me $$\" > $MAILBOX\nexec sleep 1000\n";

std::vector<std::string> arguments(int workers, int servers, std::vector<std::string> rest) {
  rest.insert(rest.begin(), {"--worker_num", str_cat(workers), "--server_num", str_cat(servers)});
  return rest;
}

TEST(LaunchPs, GivesEachProcessItsContractAndNothingOfTheOthers) {
  Workplace place;
  const std::string script =
      place.script(std::string(kName) + "env | sort; echo \"$me $$\" > $MAILBOX");
  const Environment outer({{"TRAINING_ROLE", "nonsense"},
                           {"PADDLE_TRAINER_ID", "77"},
                           {"PADDLE_CURRENT_ENDPOINT", "1.2.3.4:5"},
                           {"POD_IP", "9.9.9.9"},
                           {"PADDLE_PORT", "99"},
                           {"RANK", "3"},
                           {"WORLD_SIZE", "9"},
                           {"OMPI_COMM_WORLD_RANK", "5"},
                           {"SLURM_PROCID", "5"},
                           {"KEPT", "as it is"}});
  LauncherProcess launcher(place, "launch_ps", arguments(2, 2, {script}), outer);
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  std::set<std::string> ports;
  for (const std::string name : {"workerlog.0", "workerlog.1", "serverlog.0", "serverlog.1"}) {
    const std::string log = place.read("logs/" + name);
    EXPECT_THAT(log,
                AllOf(HasSubstr("KEPT=as it is\n"), HasSubstr("PADDLE_TRAINERS_NUM=2\n"),
                      HasSubstr("FLEET_JOB_ID=launch_ps-"), HasSubstr("FLEET_JOB_SECRET_FILE=/")));
    for (const char* foreign : {"nonsense", "=77", "RANK=", "WORLD_SIZE", "SLURM_", "OMPI_",
                                "PADDLE_CURRENT_ENDPOINT", "9.9.9.9", "FLEET_AGENT"}) {
      EXPECT_THAT(log, Not(HasSubstr(foreign))) << name;
    }
    const size_t at = log.find("PADDLE_PSERVERS_IP_PORT_LIST=");
    ASSERT_NE(at, std::string::npos);
    ports.insert(log.substr(at, log.find('\n', at) - at));
  }
  EXPECT_EQ(ports.size(), 1U) << "all see the same list of servers";
  for (const int i : {0, 1}) {
    const std::string worker = place.read(str_cat("logs/workerlog.", i));
    EXPECT_THAT(worker, AllOf(HasSubstr("TRAINING_ROLE=TRAINER\n"),
                              HasSubstr(str_cat("PADDLE_TRAINER_ID=", i, "\n")),
                              Not(HasSubstr("POD_IP")), Not(HasSubstr("PADDLE_PORT="))));
    const std::string server = place.read(str_cat("logs/serverlog.", i));
    EXPECT_THAT(server, AllOf(HasSubstr("TRAINING_ROLE=PSERVER\n"), HasSubstr("POD_IP=127.0.0.1\n"),
                              HasSubstr("PADDLE_PORT="), Not(HasSubstr("PADDLE_TRAINER_ID"))));
  }
}

TEST(LaunchPs, PassesEverythingAfterTheProgramVerbatim) {
  Workplace place;
  const std::string script = place.script(R"(printf '<%s>\n' "$@")");
  const std::vector<std::string> odd = {script, "a b",  "--worker_num", "9", "'q\"uote'", "",
                                        "--",   "--x=", "$HOME*",       ":", "-np",       "é\n"};
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, odd));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_EQ(place.read("logs/workerlog.0"),
            "<a b>\n<--worker_num>\n<9>\n<'q\"uote'>\n<>\n<-->\n<--x=>\n<$HOME*>\n<:>\n<-np>\n"
            "<é\n>\n");
}

TEST(LaunchPs, KeepsTheSecretInAPrivateFileThatGoesWithTheJob) {
  Workplace place;
  const std::string script = place.script(
      "stat -c '%a' $FLEET_JOB_SECRET_FILE; cat $FLEET_JOB_SECRET_FILE; echo "
      "$FLEET_JOB_SECRET_FILE $FLEET_JOB_SECRET");
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}));
  ASSERT_EQ(launcher.wait(), 0);
  const std::vector<std::string> lines = split(place.read("logs/workerlog.0"), '\n');
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines[0], "600");
  EXPECT_EQ(lines[1].size(), 64U);
  struct stat info {};
  EXPECT_NE(::stat(std::string(trim(lines[2])).c_str(), &info), 0) << "it outlived the job";
  EXPECT_THAT(launcher.output(), Not(HasSubstr(lines[1])));
}

TEST(LaunchPs, EndsWithWhatTheFirstWorkerSaidLast) {
  Workplace place;
  const std::string script = place.script(std::string(kName) + R"(
echo first line; echo the result of $me)");
  LauncherProcess launcher(place, "launch_ps", arguments(2, 1, {script}));
  EXPECT_EQ(launcher.wait(seconds(10)), 0);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("ended well; all logs are in "),
                                       HasSubstr("worker 0 says: the result of worker0"),
                                       Not(HasSubstr("first line"))));
}

TEST(LaunchPs, NamesTheFirstFailureItsExitCodeAndItsLastLines) {
  Workplace place;
  const std::string script = place.script(std::string(kName) + R"(
[ $me = worker1 ] || exec sleep 1000
echo first line; echo the reason >&2; exit 3)");
  LauncherProcess launcher(place, "launch_ps", arguments(2, 2, {script}));
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("worker 1 (pid "), HasSubstr("failed with exit code 3"),
                    HasSubstr("| first line\n"), HasSubstr("| the reason\n"),
                    HasSubstr("ending 3 processes")));
}

TEST(LaunchPs, NamesTheSignalThatKilledAProcess) {
  Workplace place;
  const std::string script = place.script(kStay);
  LauncherProcess launcher(place, "launch_ps", arguments(2, 1, {script}));
  const auto pids = place.messages(3);
  ::kill(to_pid(pids.at("worker1")), SIGSEGV);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(),
              HasSubstr(str_cat("worker 1 (pid ", pids.at("worker1"), ") was killed by SIGSEGV")));
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid))) << name;
}

TEST(LaunchPs, NamesAKilledServerAndNotTheWorkersThatFailBecauseOfIt) {
  Workplace place;
  // The worker fails as soon as the server's end of a FIFO closes.
  ASSERT_EQ(::mkfifo(place.path("mailbox.up").c_str(), 0600), 0);
  const std::string script = place.script(std::string(kName) + R"(
if [ $TRAINING_ROLE = PSERVER ]; then
  exec 7> "$MAILBOX.up"; echo "$me $$" > $MAILBOX; exec sleep 1000
fi
echo "$me $$" > $MAILBOX
cat "$MAILBOX.up"
echo "server 0 was lost in phase serving at step 12: its connection closed"
exit 1)");
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}));
  std::string server;
  for (const auto& [name, pid] : place.messages(2)) {
    if (name.starts_with("server")) server = pid;
  }
  ::kill(to_pid(server), SIGKILL);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("server 0 (pid " + server + ") was killed by SIGKILL"),
                    HasSubstr("worker 0 says: server 0 was lost in phase serving at step 12")));
}

TEST(LaunchPs, EndsServersAfterTheLastWorkerAndCallsThatSuccess) {
  Workplace place;
  const std::string script = place.script(std::string(kName) + R"(
echo "$me $$" > $MAILBOX
[ $TRAINING_ROLE = TRAINER ] || exec sleep 1000)");
  auto options = arguments(2, 2, {script});
  options.insert(options.begin(), {"--server_grace", "0.1"});
  LauncherProcess launcher(place, "launch_ps", options);
  const auto pids = place.messages(4);
  EXPECT_EQ(launcher.wait(seconds(5)), 0) << launcher.output();
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, ReportsAServerThatFailsAfterTheWorkers) {
  Workplace place;
  // The server fails once the worker has ended and so has closed the FIFO.
  const std::string fifo = place.path("end");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string script = place.script("if [ $TRAINING_ROLE = PSERVER ]; then cat '" + fifo +
                                          "'; exit 4; fi; exec 3> '" + fifo + "'");
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}));
  EXPECT_EQ(launcher.wait(seconds(10)), 1);
  EXPECT_THAT(launcher.output(), HasSubstr("server 0"));
  EXPECT_THAT(launcher.output(), HasSubstr("failed with exit code 4"));
}

TEST(LaunchPs, ANoticeableServerDeathEndsTheJobWithinASecond) {
  Workplace place;
  const std::string script = place.script(kStay);
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}));
  std::string server;
  for (const auto& [name, pid] : place.messages(2)) {
    if (name.starts_with("server")) server = pid;
  }
  const TimePoint begin = steady_clock().now();
  ::kill(to_pid(server), SIGKILL);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_LT(steady_clock().now() - begin, seconds(3));
}

TEST(LaunchPs, CtrlCEndsEveryChildWithExitCode130) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps", arguments(2, 2, {place.script(kStay)}));
  const auto pids = place.messages(4);
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(seconds(5)), 130);
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, SigtermEndsEveryChildEvenThoseThatIgnoreIt) {
  Workplace place;
  const std::string script =
      place.script("trap '' TERM INT\n" + std::string(kName) +
                   "echo \"$me $$\" > $MAILBOX\nwhile :; do sleep 1000; done");
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}));
  const auto pids = place.messages(2);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(seconds(5)), 143);
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, ASecondCtrlCKillsAtOnce) {
  Workplace place;
  const std::string script = place.script("trap '' TERM\n" + kStay);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}), Environment(), ends[1]);
  writing.reset();
  const auto pids = place.messages(2);
  launcher.signal(SIGINT);
  std::string said;  // the launcher says that it has the first one
  for (char byte = 0; said.find("again to kill") == std::string::npos; said += byte) {
    ASSERT_EQ(::read(reading.get(), &byte, 1), 1) << said;
  }
  const TimePoint begin = steady_clock().now();
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(seconds(5)), 130);
  EXPECT_LT(steady_clock().now() - begin, milliseconds(1500));
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

// Each member has a grandchild in its own session, which no signal to a process group reaches.
// The substitution ends when the grandchild has spoken.
const std::string kFamily = std::string(kName) + R"(
spoken=$(setsid sh -c "echo \"$me-grandchild \$\$\" > $MAILBOX; exec sleep 1000 > /dev/null" &)
echo "$me $$" > $MAILBOX
)";

TEST(LaunchPs, GrandchildrenEndWithTheJob) {
  Workplace place;
  const std::string script = place.script(kFamily + "[ $me = worker0 ] && exit 5; exec sleep 1000");
  LauncherProcess launcher(place, "launch_ps", arguments(2, 1, {script}));
  const auto pids = place.messages(6);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, GrandchildrenEndAfterSuccessToo) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {place.script(kFamily)}));
  const auto pids = place.messages(4);
  EXPECT_EQ(launcher.wait(seconds(5)), 0);
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, NothingOutlivesALauncherThatIsKilled) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps",
                           arguments(2, 2, {place.script(kFamily + "exec sleep 1000")}));
  const auto pids = place.messages(8);
  const std::vector<pid_t> children = children_of(launcher.pid());
  EXPECT_EQ(children.size(), 9U) << "four members, four adopted orphans and the guard";
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), -SIGKILL);
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid))) << name;
  for (const pid_t pid : children) EXPECT_TRUE(gone(pid));
}

TEST(LaunchPs, AStoppedProcessIsReportedAndEndsWithTheJob) {
  Workplace place;
  auto options = arguments(2, 1, {place.script(kStay)});
  options.insert(options.begin(), {"--heartbeat_timeout", "0.3"});
  LauncherProcess launcher(place, "launch_ps", options);
  const auto pids = place.messages(3);
  ::kill(to_pid(pids.at("worker0")), SIGSTOP);
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("worker 0 (pid " + pids.at("worker0")),
                                       HasSubstr("was stopped (SIGSTOP")));
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, AStoppedProcessThatContinuesHarmsNothing) {
  Workplace place;
  const std::string script = place.script(std::string(kName) + R"(
[ $TRAINING_ROLE = TRAINER ] || exit 0
echo "$me $$" > $MAILBOX; read line < "$MAILBOX.go"; exit 0)");
  ASSERT_EQ(::mkfifo(place.path("mailbox.go").c_str(), 0600), 0);
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {script}));
  const pid_t worker = to_pid(place.messages(1).at("worker0"));
  ::kill(worker, SIGSTOP);
  ::kill(worker, SIGCONT);
  {
    const FileDescriptor go(::open(place.path("mailbox.go").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::write(go.get(), "go\n", 3), 3);
    EXPECT_EQ(launcher.wait(seconds(10)), 0) << launcher.output();
  }
}

// The time counts from the last stop: of a limit of 4 s, the first stop takes 3 and the second 2.
TEST(LaunchPs, AProcessThatStopsAgainHasTheWholeTimeAgain) {
  Workplace place;
  const std::string script = place.script(std::string(kName) + R"(
[ $TRAINING_ROLE = TRAINER ] || exit 0
echo "$me $$" > $MAILBOX; read line < "$MAILBOX.go"; exit 0)");
  ASSERT_EQ(::mkfifo(place.path("mailbox.go").c_str(), 0600), 0);
  auto options = arguments(1, 1, {script});
  options.insert(options.begin(), {"--heartbeat_timeout", "3"});
  LauncherProcess launcher(place, "launch_ps", options);
  const pid_t worker = to_pid(place.messages(1).at("worker0"));
  for (const auto time : {seconds(3), seconds(2)}) {
    ::kill(worker, SIGSTOP);
    EXPECT_FALSE(gone(launcher.pid(), time)) << launcher.output();
    ::kill(worker, SIGCONT);
  }
  const FileDescriptor go(::open(place.path("mailbox.go").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::write(go.get(), "go\n", 3), 3);
  EXPECT_EQ(launcher.wait(seconds(10)), 0) << launcher.output();
}

TEST(LaunchPs, AKilledGuardEndsTheJobAndIsNamed) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps", arguments(1, 1, {place.script(kStay)}));
  const auto pids = place.messages(2);
  for (const pid_t child : children_of(launcher.pid())) {
    const bool member = std::any_of(
        pids.begin(), pids.end(), [&](const auto& entry) { return to_pid(entry.second) == child; });
    if (!member) ::kill(child, SIGKILL);
  }
  EXPECT_EQ(launcher.wait(seconds(5)), 1);
  EXPECT_THAT(launcher.output(), HasSubstr("guard of the job"));
  for (const auto& [name, pid] : pids) EXPECT_TRUE(gone(to_pid(pid), Duration(0))) << name;
}

TEST(LaunchPs, TeePrefixesEachLineWithItsRank) {
  Workplace place;
  const std::string script =
      place.script(std::string(kName) + "echo \"line of $TRAINING_ROLE\"; printf unfinished");
  auto options = arguments(1, 1, {script});
  options.insert(options.begin(), "--tee");
  LauncherProcess launcher(place, "launch_ps", options);
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("[worker 0] line of TRAINER\n"), HasSubstr("[worker 0] unfinished\n"),
                    HasSubstr("[server 0] line of PSERVER\n")));
}

TEST(LaunchPs, LogsAreEmptiedAtTheStart) {
  Workplace place;
  LauncherProcess first(place, "launch_ps", arguments(1, 1, {place.script("echo one")}));
  ASSERT_EQ(first.wait(), 0);
  LauncherProcess second(place, "launch_ps", arguments(1, 1, {place.script("echo two")}));
  ASSERT_EQ(second.wait(), 0);
  EXPECT_EQ(place.read("logs/workerlog.0"), "two\n");
  EXPECT_EQ(place.read("logs/serverlog.0"), "two\n");
}

TEST(LaunchPs, ShowsProgressAsOrdinaryLinesInAPipe) {
  Workplace place;
  const std::string script = place.script(R"(
[ $TRAINING_ROLE = TRAINER ] || exit 0
echo "progress step=7 loss=0.25 steps_per_s=900" >&$FLEET_PROGRESS_FD
echo "fd $FLEET_PROGRESS_FD" > $MAILBOX)");
  auto options = arguments(1, 1, {script});
  options.insert(options.begin(), "--progress");
  LauncherProcess launcher(place, "launch_ps", options);
  EXPECT_EQ(place.next_message(), "fd 3");
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
  EXPECT_THAT(launcher.output(), HasSubstr("1 worker, 1 server"));
  EXPECT_THAT(launcher.output(), Not(HasSubstr("\r")));
  EXPECT_THAT(launcher.output(), Not(HasSubstr("\x1b")));
}

// What a launcher with a progress line writes to a terminal.
std::string terminal_output(const Workplace& place, const Environment& extra) {
  int master = -1;
  int slave = -1;
  EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const FileDescriptor reading(master);
  const std::string script = place.script(
      "[ $TRAINING_ROLE = TRAINER ] || exit 0\n"
      "echo 'progress step=7 loss=0.25' >&$FLEET_PROGRESS_FD; exit 6");
  auto options = arguments(1, 1, {script});
  options.insert(options.begin(), "--progress");
  {
    const FileDescriptor writing(slave);
    LauncherProcess launcher(place, "launch_ps", options, extra, slave);
    EXPECT_EQ(launcher.wait(), 1);
  }
  std::string text;
  char bytes[4096];
  for (ssize_t count = 0; (count = ::read(master, bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

TEST(LaunchPs, RewritesOneProgressLineOnATerminal) {
  Workplace place;
  const std::string text = terminal_output(place, Environment());
  EXPECT_THAT(text, AllOf(HasSubstr("\r"), HasSubstr("1 worker, 1 server"), HasSubstr("\x1b[31m")));
}

TEST(LaunchPs, UsesNoColourWithNoColor) {
  Workplace place;
  const std::string text = terminal_output(place, variable("NO_COLOR", "1"));
  EXPECT_THAT(text, AllOf(HasSubstr("failed with exit code 6"), Not(HasSubstr("\x1b"))));
}

TEST(LaunchPs, AReaderThatLeavesDoesNotEndTheJob) {
  Workplace place;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  const FileDescriptor nobody_reads(ends[1]);
  auto options = arguments(1, 1, {place.script("echo a line")});
  options.insert(options.begin(), {"--tee", "--progress"});
  LauncherProcess launcher(place, "launch_ps", options, Environment(), nobody_reads.get());
  EXPECT_EQ(launcher.wait(), 0);
}

// Ten times what a pipe holds.
TEST(LaunchPs, AReaderThatDoesNotReadNeitherHoldsUpSignalsNorLosesLines) {
  Workplace place;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reading(ends[0]);
  std::optional<FileDescriptor> writing(ends[1]);
  auto options = arguments(1, 1, {place.script(std::string(kName) + R"(
[ $TRAINING_ROLE = TRAINER ] || exec sleep 1000
i=0; while [ $i -lt 10000 ]; do echo "line $i of the worker, as long as it takes to fill it"; i=$((i+1)); done
echo "$me $$" > $MAILBOX; exec sleep 1000)")});
  options.insert(options.begin(), {"--tee"});
  LauncherProcess launcher(place, "launch_ps", options, Environment(), writing->get());
  writing.reset();
  const pid_t worker = to_pid(place.messages(1).at("worker0"));
  launcher.signal(SIGINT);
  EXPECT_TRUE(gone(worker, seconds(10))) << "the signal was not handled";
  std::string text;
  char bytes[65536];
  for (ssize_t count = 0; (count = ::read(reading.get(), bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  EXPECT_EQ(launcher.wait(), 128 + SIGINT);
  for (int i : {0, 1000, 9999}) EXPECT_THAT(text, HasSubstr(str_cat("[worker 0] line ", i, " of")));
}

TEST(LaunchPs, AMissingProgramIsAnErrorThatNamesThePathAndTheFix) {
  Workplace place;
  LauncherProcess launcher(place, "launch_ps", {"./no/such/program", "--x"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("does not exist"), HasSubstr("./no/such/program"),
                                       HasSubstr("fix:")));
}

TEST(LaunchPs, AProgramThatIsNotExecutableIsAnErrorWithTheFix) {
  Workplace place;
  const std::string script = place.script("exit 0");
  ::chmod(script.c_str(), 0600);
  LauncherProcess launcher(place, "launch_ps", {script});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.output(), HasSubstr("chmod +x " + script));
}

TEST(LaunchPs, AFileThatTheKernelCannotRunIsAnErrorAndLeavesNothing) {
  Workplace place;
  const std::string script = place.script("");
  const FileDescriptor file(::open(script.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  LauncherProcess launcher(place, "launch_ps", {script});
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(), HasSubstr("cannot start the program"));
}

TEST(LaunchPs, ATakenPortIsRefusedAndItsHolderNamed) {
  Workplace place;
  const FileDescriptor holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(holder.get(), plain, size), 0);
  ASSERT_EQ(::listen(holder.get(), 1), 0);
  ASSERT_EQ(::getsockname(holder.get(), plain, &size), 0);
  const std::string port = str_cat(ntohs(address.sin_port));
  auto options = arguments(1, 1, {place.script("exit 0")});
  options.insert(options.begin(), {"--start_port", port});
  LauncherProcess launcher(place, "launch_ps", options);
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(),
              AllOf(HasSubstr("127.0.0.1:" + port), HasSubstr(str_cat("process ", ::getpid()))));
}

TEST(LaunchPs, PrintConfigShowsTheProcessesAndNoSecret) {
  Workplace place;
  auto options = arguments(1, 2, {place.script("cat $FLEET_JOB_SECRET_FILE; echo done")});
  options.insert(options.begin(), "--print_config");
  LauncherProcess launcher(place, "launch_ps", options);
  ASSERT_EQ(launcher.wait(), 0);
  const std::string log = place.read("logs/workerlog.0");
  const std::string secret = log.substr(0, log.find('\n'));
  ASSERT_EQ(secret.size(), 64U);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("server 1  log="), HasSubstr("worker 0  log="),
                                       HasSubstr("TRAINING_ROLE=PSERVER"), Not(HasSubstr(secret))));
}

TEST(LaunchPs, InsecureSaysSoAndGivesNoSecret) {
  Workplace place;
  auto options = arguments(1, 1, {place.script("env")});
  options.insert(options.begin(), "--insecure");
  LauncherProcess launcher(place, "launch_ps", options);
  ASSERT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), HasSubstr("--insecure"));
  EXPECT_THAT(place.read("logs/workerlog.0"),
              AllOf(HasSubstr("FLEET_INSECURE=1\n"), Not(HasSubstr("FLEET_JOB_SECRET"))));
}

TEST(LaunchPs, NoDescriptorOfTheLauncherButThatForProgressGetsIntoAChild) {
  Workplace place;
  LauncherProcess launcher(
      place, "launch_ps",
      arguments(
          2, 2,
          {place.script("ls /proc/self/fd | sort -n | tr '\\n' ' '; echo $FLEET_PROGRESS_FD")}));
  ASSERT_EQ(launcher.wait(), 0);
  // 4 is the folder that ls itself reads.
  EXPECT_EQ(place.read("logs/workerlog.1"), "0 1 2 3 4 3\n");
}

}  // namespace
}  // namespace fleet::launch::testing

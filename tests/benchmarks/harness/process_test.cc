#include "benchmarks/harness/process.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool is_zombie(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") Z ") != std::string::npos;
}

// getenv returns the first entry of a name, whatever stands behind it.
TEST(ChangedEnvironment, TakesThePlaceOfWhatWasGiven) {
  EXPECT_THAT(changed_environment({"A=1", "OMP=8", "B=2", "OMP_X=3"}, {"OMP=1", "C=4"}),
              ElementsAre("A=1", "B=2", "OMP_X=3", "OMP=1", "C=4"));
}

TEST(RunProcess, AProgramSeesTheChangedVariableOnce) {
  setenv("FLEET_BENCH_PROBE", "exported", 1);
  const auto result =
      run_process({"/bin/sh", "-c", "echo $FLEET_BENCH_PROBE; env"}, {"FLEET_BENCH_PROBE=wanted"});
  unsetenv("FLEET_BENCH_PROBE");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.substr(0, result.output.find('\n')), "wanted");
  EXPECT_THAT(result.output, ::testing::Not(HasSubstr("exported")));
}

TEST(RunProcess, SaysHowTheProgramEnded) {
  EXPECT_EQ(run_process({"/bin/sh", "-c", "exit 3"}).exit_code, 3);
  EXPECT_EQ(run_process({"/bin/sh", "-c", "kill -KILL $$"}).exit_code, 128 + 9);
  EXPECT_THROW(run_process({"/no/such/program"}), Error);
}

TEST(RunProcess, OneThatIsNotDoneInTimeIsKilledWithWhatItStarted) {
  const auto result =
      run_process({"/bin/sh", "-c", "sleep 300 & echo $!; wait"}, {}, /*limit_s=*/0.5);
  EXPECT_TRUE(result.timed_out);
  EXPECT_LT(result.seconds, 10);
  // Its parent is gone: init reaps it soon.
  const pid_t child = std::atoi(result.output.c_str());
  ASSERT_GT(child, 0);
  for (int i = 0; i < 500 && kill(child, 0) == 0 && !is_zombie(child); ++i) usleep(10'000);
  EXPECT_TRUE(kill(child, 0) != 0 || is_zombie(child));
}

TEST(RunProcess, DoesNotWaitForWhatAProgramLeavesBehind) {
  const auto result = run_process({"/bin/sh", "-c", "sleep 20 & echo $!"});
  EXPECT_LT(result.seconds, 10);
  EXPECT_FALSE(result.timed_out);
  kill(std::atoi(result.output.c_str()), SIGKILL);
}

TEST(RunToSuccess, ThrowsWhatFailed) {
  try {
    run_to_success({"/bin/sh", "-c", "echo this is why >&2; exit 3"});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("exit code 3"), HasSubstr("this is why")));
  }
}

// The first line that a process has written to the file.
std::string said_by(BackgroundProcess& process, const std::string& file) {
  std::string line;
  do {
    std::ifstream output(file);
    std::getline(output, line);
    if (!output.eof()) return line;
  } while (process.running());
  return "it has ended";
}

TEST(BackgroundProcess, EndsWithItsOwner) {
  const TemporaryFolder folder;
  std::string said;
  {
    BackgroundProcess process({"/bin/sh", "-c", "echo $$ $A; exec sleep 300"}, {"A=here"},
                              folder.file("output"));
    said = said_by(process, folder.file("output"));
  }
  EXPECT_THAT(said, HasSubstr(" here"));
  EXPECT_NE(kill(std::atoi(said.c_str()), 0), 0);
}

TEST(BackgroundProcess, OneThatDoesNotEndIsKilledWithWhatItStarted) {
  const TemporaryFolder folder;
  std::string said;
  {
    BackgroundProcess process(
        {"/bin/sh", "-c", "trap '' TERM; sleep 300 & echo $!; while :; do wait; done"}, {},
        folder.file("output"), /*grace_s=*/0.1);
    said = said_by(process, folder.file("output"));
  }
  const pid_t child = std::atoi(said.c_str());
  ASSERT_GT(child, 0);
  for (int i = 0; i < 500 && kill(child, 0) == 0 && !is_zombie(child); ++i) usleep(10'000);
  EXPECT_TRUE(kill(child, 0) != 0 || is_zombie(child));
}

TEST(BackgroundProcess, KnowsThatItsProgramHasEnded) {
  const TemporaryFolder folder;
  BackgroundProcess process({"/bin/true"}, {}, folder.file("output"));
  while (process.running()) usleep(1000);
  EXPECT_FALSE(process.running());
}

}  // namespace
}  // namespace fleet::benchmarks

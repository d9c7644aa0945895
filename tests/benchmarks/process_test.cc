#include "benchmarks/harness/process.h"

#include <cstdlib>
#include <gmock/gmock.h>

#include "base/error.h"

namespace fleet::benchmarks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST(RunToSuccess, ThrowsWhatFailed) {
  try {
    run_to_success({"/bin/sh", "-c", "exit 3"});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("exit code 3"));
  }
}

}  // namespace
}  // namespace fleet::benchmarks

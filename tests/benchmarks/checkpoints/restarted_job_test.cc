#include "benchmarks/checkpoints/restarted_job.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {
namespace {

// A launcher with two workers, of which the second is a process that can be killed. Its second
// attempt goes on from step 10.
constexpr const char* kJob = R"sh(
  say() { echo "$2 $3 $4 $(cut -d ' ' -f 1 /proc/uptime)" >>"trace$1"; }
  cd "$1"
  trap 'kill $!; exit' TERM
  sleep 100 &
  for worker in 0 1; do
    say $worker 0 start $!
    say $worker 0 from 0
    say $worker 0 step 10
    say $worker 0 step 11
  done
  say 1 0 step 12
  echo step-000000010 >latest
  wait $!
  [ "$2" != gives_up ] || exit 3
  sleep 100 &
  for worker in 0 1; do
    say $worker 1 start $!
    say $worker 1 from 10
    for step in 11 12 13 14; do say $worker 1 step $step; done
  done
  wait
)sh";

class RestartedJobTest : public ::testing::Test {
 protected:
  RestartableJob job(const std::string& behaviour) const {
    return {.command = {"/bin/sh", "-c", kJob, "job", folder_.file(""), behaviour},
            .environment = {},
            .traces = {folder_.file("trace0"), folder_.file("trace1")},
            .latest = folder_.file("latest"),
            .output = folder_.file("output")};
  }

  const TemporaryFolder folder_;
};

TEST_F(RestartedJobTest, TimesTheFirstStepThatNoWorkerHadDone) {
  RestartedJob job(this->job("goes_on"));
  const RestartTimes times = job.kill_one();
  EXPECT_EQ(times.repeated, 2) << "worker 1 was at step 12, and the checkpoint is of step 10";
  RestartTrace trace(folder_.file("trace0"));
  trace.read();
  const auto& steps = trace.attempts().at(1).steps;
  EXPECT_DOUBLE_EQ(times.first, steps[0].second - trace.attempts()[1].from_s);
  EXPECT_DOUBLE_EQ(times.repeat, steps[2].second - steps[0].second);
}

TEST_F(RestartedJobTest, SaysThatTheJobWasNotStartedAgain) {
  RestartedJob job(this->job("gives_up"));
  EXPECT_THROW(job.kill_one(), Error);
}

}  // namespace
}  // namespace fleet::benchmarks

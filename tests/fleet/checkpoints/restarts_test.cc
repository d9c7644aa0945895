// Jobs that lose processes, or are told to end, and go on from their checkpoints.
#include <algorithm>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "base/strings.h"
#include "tests/fleet/checkpoints/checkpoint_files.h"
#include "tests/fleet/checkpoints/launched_job.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRequeue = 75;

struct JobForm {
  const char* name;
  const char* launcher;
  const char* options;
  bool servers;
};

std::ostream& operator<<(std::ostream& out, const JobForm& form) {
  return out << form.name;
}

const JobForm kForms[] = {
    {"sync", "launch_ps --worker_num 2 --server_num 2", "", true},
    {"ranks", "launch --nproc_per_node 2 --collectives sockets", "", false},
    {"mpi", "launch --nproc_per_node 2 --collectives mpi", "", false},
    {"async", "launch_ps --worker_num 2 --server_num 2", "--strategy async --optimizer plain",
     true},
};

class Lost : public ::testing::TestWithParam<JobForm> {
 protected:
  Lost() {
    std::string folder = ::testing::TempDir() + "restarts-XXXXXX";
    root_ = mkdtemp(folder.data());
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~Lost() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  fs::path path(const std::string& name) const { return root_ / name; }
  std::string folder() const { return path("saved").string(); }
  std::string command(const std::string& launcher_options, const std::string& options) const {
    return str_cat(binary_path("bin/"), GetParam().launcher, " ", launcher_options, " --log_dir ",
                   path("logs").string(), " ", binary_path("bin/checkpoint_worker"), " ",
                   GetParam().options, " --shards 4 --folder ", folder(), " ", options);
  }
  std::vector<pid_t> workers() const {
    return processes_of(folder(),
                        GetParam().servers ? "TRAINING_ROLE=TRAINER" : "PADDLE_TRAINER_ID=");
  }
  std::vector<pid_t> servers() const { return processes_of(folder(), "TRAINING_ROLE=PSERVER"); }
  std::string said() const {
    std::string all = text_of(path("output"));
    for (const auto& file : fs::directory_iterator(path("logs"))) {
      all += "\n" + file.path().filename().string() + ":\n" + text_of(file.path());
    }
    return all;
  }
  // Returns when the job has a checkpoint of that step or a later one, or has ended.
  void wait_for_step(Launched& job, int64_t step) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!job.ended() && std::chrono::steady_clock::now() < end) {
      const auto stored = fluid::io::CheckpointStore(folder()).list();
      if (!stored.empty() && stored.front().step >= step) return;
      usleep(2000);
    }
  }
  // What an undisturbed run on one machine has at the end.
  void expect_undisturbed_bits(int steps) const {
    if (std::string(GetParam().name) == "async") return;
    const auto done =
        run_command(str_cat(binary_path("bin/checkpoint_worker"), " --shards 4 --steps ", steps,
                            " --every ", steps, " --folder ", path("whole").string()));
    ASSERT_EQ(done.code, 0) << done.output;
    EXPECT_THAT(differences(of_step(path("whole"), steps), of_step(path("saved"), steps)),
                IsEmpty());
  }

  fs::path root_;
};

TEST_P(Lost, ProcessesAreStartedAgainAndTheJobEndsWithTheSameBits) {
  constexpr int kSteps = 120;
  constexpr int kKills = 3;
  Launched job(command("--max_restarts 5", str_cat("--sleep_ms 3 --steps ", kSteps, " --every 10")),
               path("output"));
  std::minstd_rand draw(static_cast<unsigned>(std::string(GetParam().name).size()));
  int killed = 0;
  for (int64_t step = 10; killed < kKills && !job.ended(); step += 20) {
    wait_for_step(job, step);
    const bool server = GetParam().servers && killed % 2 == 1;
    const auto victims = server ? servers() : workers();
    if (victims.empty()) continue;
    if (kill(victims[draw() % victims.size()], SIGKILL) == 0) ++killed;
  }
  EXPECT_EQ(job.wait(), 0) << said();
  EXPECT_GE(killed, 2);
  EXPECT_THAT(text_of(path("output")), HasSubstr("attempt 2 of 6 begins"));
  EXPECT_THAT(said(), HasSubstr("checkpoint going on"));
  expect_undisturbed_bits(kSteps);
}

TEST_P(Lost, AJobThatIsToldToEndSavesAndGoesOnLater) {
  constexpr int kSteps = 90;
  {
    Launched job(command("", str_cat("--sleep_ms 5 --steps ", kSteps, " --every 30")),
                 path("output"));
    wait_for_step(job, 30);
    kill(job.pid(), SIGTERM);
    EXPECT_EQ(job.wait(), kRequeue) << said();
  }
  EXPECT_THAT(text_of(path("output")), HasSubstr("start it again to go on"));
  const auto saved = fluid::io::CheckpointStore(folder()).list();
  ASSERT_FALSE(saved.empty());
  EXPECT_GE(saved.front().step, 30);
  Launched job(command("", str_cat("--steps ", kSteps, " --every 30")), path("output"));
  EXPECT_EQ(job.wait(), 0) << said();
  // Workers that are not in step go on each from its own.
  const bool in_step = std::string(GetParam().name) != "async";
  EXPECT_THAT(said(), HasSubstr(in_step ? str_cat("going on step=", saved.front().step)
                                        : "going on step="));
  expect_undisturbed_bits(kSteps);
}

TEST_P(Lost, OneWorkerThatIsToldToEndEndsAll) {
  Launched job(command("--max_restarts 2", "--sleep_ms 5 --steps 2000 --every 10"), path("output"));
  wait_for_step(job, 10);
  const auto running = workers();
  ASSERT_FALSE(running.empty());
  kill(running.front(), SIGTERM);
  EXPECT_EQ(job.wait(), kRequeue) << said();
}

TEST_P(Lost, ASignalAsksForACheckpoint) {
  Launched job(command("", "--sleep_ms 5 --steps 300 --every 100 --keep 0"), path("output"));
  wait_for_step(job, 100);
  usleep(100'000);
  for (const pid_t worker : workers()) kill(worker, SIGUSR2);
  EXPECT_EQ(job.wait(), 0) << said();
  const auto saved = fluid::io::CheckpointStore(folder()).list();
  EXPECT_TRUE(std::any_of(saved.begin(), saved.end(), [](const auto& checkpoint) {
    return checkpoint.step % 100 > 5;
  })) << said();
}

INSTANTIATE_TEST_SUITE_P(Forms, Lost, ::testing::ValuesIn(kForms),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace fleet::testing

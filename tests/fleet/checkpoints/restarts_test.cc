// Jobs that lose processes, or are told to end, and go on from their checkpoints.
#include <algorithm>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "base/net/port_reservation.h"
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
  const char* starter;  // of launchers; empty: there is one
  const char* launcher;
  const char* options;
  bool servers;
};

std::ostream& operator<<(std::ostream& out, const JobForm& form) {
  return out << form.name;
}

const JobForm kForms[] = {
    {"sync", "", "launch_ps --worker_num 2 --server_num 2", "", true},
    {"ranks", "", "launch --nproc_per_node 2 --collectives sockets", "", false},
    {"mpi", "", "launch --nproc_per_node 2 --collectives mpi", "", false},
    {"async", "", "launch_ps --worker_num 2 --server_num 2", "--strategy async --optimizer plain",
     true},
};

// Two hosts are two addresses of this machine.
const JobForm kHostForms[] = {
    {"ssh_sync", "",
     "launch_ps --hosts 127.0.0.2,127.0.0.3 --ssh $SSH_STAND_IN --start_port $FREE_PORT "
     "--worker_num 2 --server_num 2",
     "", true},
    {"ssh_ranks", "",
     "launch --hosts 127.0.0.2,127.0.0.3 --ssh $SSH_STAND_IN --started_port $FREE_PORT "
     "--nproc_per_node 1",
     "", false},
};

// By $BY_HAND, which starts a launcher for each.
const JobForm kLaunchersByHand[] = {
    {"servers_by_hand", "$BY_HAND",
     "launch_ps --launcher_port $OTHER_PORT --start_port $FREE_PORT --worker_num 2 --server_num 2",
     "", true},
    {"ranks_by_hand", "$BY_HAND",
     "launch --launcher_port $OTHER_PORT --started_port $FREE_PORT --nproc_per_node 1", "", false},
};

// Ends with the exit code of both launchers, which must be the same.
constexpr const char* kStartByHand = R"sh(
export FLEET_JOB_SECRET=a-secret-of-two-hosts-in-a-test SKYPILOT_NUM_NODES=2
export SKYPILOT_NODE_IPS="$(printf '127.0.0.2\n127.0.0.3')"
SKYPILOT_NODE_RANK=0 "$@" & first=$!
SKYPILOT_NODE_RANK=1 "$@" & second=$!
trap 'kill $first $second' TERM
await() {
  wait $1; code=$?
  while [ $code -gt 128 ] && kill -0 $1 2> /dev/null; do wait $1; code=$?; done
}
await $first; one=$code
await $second
[ $code = $one ] || exit 99
exit $code)sh";

class Lost : public ::testing::TestWithParam<JobForm> {
 protected:
  Lost() {
    std::string folder = ::testing::TempDir() + "restarts-XXXXXX";
    root_ = mkdtemp(folder.data());
    setenv("FLEET_SERVER_FOLDERS", root_.c_str(), 1);
    add_script("SSH_STAND_IN", "shift; exec sh -c \"$*\"");
    add_script("BY_HAND", kStartByHand);
    const PortReservation free = PortReservation::any("0.0.0.0", 2);
    setenv("FREE_PORT", str_cat(free.endpoints().front().port).c_str(), 1);
    setenv("OTHER_PORT", str_cat(free.endpoints().back().port).c_str(), 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~Lost() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  // Its path is in the environment by this name.
  void add_script(const std::string& name, const std::string& body) const {
    std::ofstream(path(name)) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path(name), fs::perms::owner_all);
    setenv(name.c_str(), path(name).c_str(), 1);
  }
  fs::path path(const std::string& name) const { return root_ / name; }
  std::string folder() const { return path("saved").string(); }
  std::string command(const std::string& launcher_options, const std::string& options) const {
    return str_cat(GetParam().starter, " ", binary_path("bin/"), GetParam().launcher, " ",
                   launcher_options, " --log_dir ", path("logs").string(), " ",
                   binary_path("bin/checkpoint_worker"), " ", GetParam().options,
                   " --shards 4 --folder ", folder(), " ", options);
  }
  std::vector<pid_t> workers() const {
    return processes_of(folder(),
                        GetParam().servers ? "TRAINING_ROLE=TRAINER" : "PADDLE_TRAINER_ID=");
  }
  // Those that run on hosts.
  std::vector<pid_t> launchers() const { return processes_of("--orders_from_stdin", folder()); }
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

class LostHost : public Lost {};
class LostLauncher : public Lost {};

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

TEST_P(LostLauncher, LeavesAJobThatGoesOnWhenItIsStartedAgain) {
  constexpr int kSteps = 90;
  {
    Launched job(command("", str_cat("--sleep_ms 5 --steps ", kSteps, " --every 30")),
                 path("output"));
    wait_for_step(job, 30);
    kill(job.pid(), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
  }
  while (!workers().empty() || !servers().empty()) usleep(2000);
  Launched job(command("--resume latest", str_cat("--steps ", kSteps, " --every 30")),
               path("output"));
  EXPECT_EQ(job.wait(), 0) << said();
  expect_undisturbed_bits(kSteps);
}

TEST_P(LostHost, IsTakenInAgain) {
  constexpr int kSteps = 120;
  Launched job(command("--max_restarts 5", str_cat("--sleep_ms 3 --steps ", kSteps, " --every 10")),
               path("output"));
  int killed = 0;
  for (int64_t step = 10; killed < 2 && !job.ended(); step += 30) {
    wait_for_step(job, step);
    const auto victims = launchers();
    if (victims.size() == 2 && kill(victims[static_cast<size_t>(killed)], SIGKILL) == 0) ++killed;
  }
  EXPECT_EQ(job.wait(), 0) << said();
  EXPECT_EQ(killed, 2);
  EXPECT_THAT(text_of(path("output")), HasSubstr("was lost: ssh to host"));
  expect_undisturbed_bits(kSteps);
}

std::string name_of(const ::testing::TestParamInfo<JobForm>& form) {
  return form.param.name;
}
INSTANTIATE_TEST_SUITE_P(Forms, Lost, ::testing::ValuesIn(kForms), name_of);
INSTANTIATE_TEST_SUITE_P(HostForms, Lost, ::testing::ValuesIn(kHostForms), name_of);
INSTANTIATE_TEST_SUITE_P(ByHand, Lost, ::testing::ValuesIn(kLaunchersByHand), name_of);
INSTANTIATE_TEST_SUITE_P(Forms, LostLauncher, ::testing::ValuesIn(kForms), name_of);
INSTANTIATE_TEST_SUITE_P(HostForms, LostLauncher, ::testing::ValuesIn(kHostForms), name_of);
INSTANTIATE_TEST_SUITE_P(HostForms, LostHost, ::testing::ValuesIn(kHostForms), name_of);

}  // namespace
}  // namespace fleet::testing

// Random kills of any process of a job in every mode: each job ends, with what it should have. How
// many kills there are, FLEET_CHECKPOINT_KILLS says.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
#include <random>

#include "base/strings.h"
#include "tests/fleet/checkpoints/checkpoint_files.h"
#include "tests/fleet/checkpoints/launched_job.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

constexpr int kEvery = 10;
constexpr int kKillsPerJob = 5;
constexpr int kSteps = kEvery * 2 * (kKillsPerJob + 1);

// What a job ends with.
enum class Proof {
  kBits,      // of the same job without kills
  kCount,     // every gradient that its workers have told of, once
  kFinished,  // the steps that it was to do
};

struct Form {
  const char* name;
  const char* launcher;
  const char* options;
  Proof proof;
};

std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

constexpr const char* kServers = "launch_ps --worker_num 2 --server_num 2";
constexpr const char* kRanks = "launch --nproc_per_node 2 --collectives sockets";
constexpr const char* kMpi = "launch --nproc_per_node 2 --collectives mpi";

const Form kForms[] = {
    {"sync", kServers, "--optimizer adam", Proof::kBits},
    {"growing", kServers, "--optimizer adam --growing", Proof::kBits},
    {"async", kServers, "--strategy async --count", Proof::kCount},
    {"half_async", kServers, "--strategy half_async --count", Proof::kCount},
    {"dc_asgd", kServers, "--strategy dc_asgd --optimizer plain", Proof::kFinished},
    {"geo", kServers, "--strategy geo --optimizer momentum", Proof::kFinished},
    {"easgd", kServers, "--strategy easgd --optimizer momentum", Proof::kFinished},
    {"ranks", kRanks, "--optimizer momentum", Proof::kBits},
    {"mpi", kMpi, "--optimizer adam", Proof::kBits},
    {"local_sgd", kRanks, "--strategy local_sgd --optimizer momentum", Proof::kBits},
};

int kills_of_each_form() {
  const char* wanted = std::getenv("FLEET_CHECKPOINT_KILLS");
  const int all = wanted == nullptr ? 45 : std::atoi(wanted);
  return std::max(1, all / static_cast<int>(std::size(kForms)));
}

class Kills : public ::testing::TestWithParam<Form> {
 protected:
  Kills() {
    std::string folder = ::testing::TempDir() + "kills-XXXXXX";
    root_ = mkdtemp(folder.data());
    setenv("FLEET_SERVER_FOLDERS", root_.c_str(), 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~Kills() override { clean(); }

  void clean() const {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
    fs::create_directories(root_, ignored);
  }
  fs::path path(const std::string& name) const { return root_ / name; }
  std::string command(const std::string& folder, const std::string& launcher_options) const {
    return str_cat(binary_path("bin/"), GetParam().launcher, " ", launcher_options, " --log_dir ",
                   path("logs-" + folder).string(), " ", binary_path("bin/checkpoint_worker"), " ",
                   GetParam().options, " --shards 4 --keep 0 --sleep_ms 2 --every ", kEvery,
                   " --steps ", kSteps, " --folder ", path(folder).string(), " --copy_to ",
                   path(folder + "-end").string());
  }
  std::string said() const {
    std::string all = text_of(path("output"));
    for (const auto& file : fs::directory_iterator(path("logs-saved"))) {
      all += "\n" + file.path().filename().string() + ":\n" + text_of(file.path());
    }
    return all;
  }
  bool at_step(int64_t step) const {
    const auto stored = fluid::io::CheckpointStore(path("saved")).list();
    return !stored.empty() && stored.front().step >= step;
  }
  // Processes of the job, and the launcher itself.
  std::vector<pid_t> victims() const {
    return processes_of(path("saved").string(), "FLEET_LAUNCH_ID=");
  }

  // Kills one process after the other, each behind a new checkpoint; a launcher that was killed is
  // started again.
  void kill_at_random(std::minstd_rand& draw) {
    const std::string job_command =
        command("saved", str_cat("--max_restarts ", kKillsPerJob + 1, " --resume latest"));
    auto job = std::make_unique<Launched>(job_command, path("output"));
    for (int kills = 0; kills < kKillsPerJob && !job->ended();) {
      if (!at_step(kEvery * (2 * kills + 1))) {
        usleep(1000);
        continue;
      }
      usleep(draw() % 40'000);
      const auto processes = victims();
      const size_t victim = draw() % (processes.size() + 1);
      const bool launcher = victim == processes.size();
      const pid_t pid = launcher ? job->pid() : processes[victim];
      if (pid <= 0 || kill(pid, SIGKILL) != 0) continue;
      ++kills;
      ++(launcher ? launchers_ : killed_);
      if (!launcher) continue;
      job->wait();
      wait_until_nobody_is_left();
      job = std::make_unique<Launched>(job_command, path("output"));
    }
    EXPECT_EQ(job->wait(), 0) << said();
  }
  void wait_until_nobody_is_left() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!victims().empty() && std::chrono::steady_clock::now() < end) usleep(2000);
    EXPECT_THAT(victims(), IsEmpty()) << "behind a launcher that was killed";
  }

  void expect_bits() const {
    const auto alike = run_command(command("whole", ""), 100);
    ASSERT_EQ(alike.code, 0) << alike.output;
    EXPECT_THAT(differences(of_step(path("whole-end"), kSteps), of_step(path("saved-end"), kSteps)),
                IsEmpty())
        << said();
  }
  void expect_counts() const {
    auto all = fluid::io::CheckpointStore(path("saved")).list();
    all.push_back({kSteps, of_step(path("saved-end"), kSteps)});
    for (const auto& stored : all) {
      const auto checkpoint = fluid::io::CheckpointReader::open(stored.folder);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
      int64_t steps = 0;
      for (const int64_t each : checkpoint.value().info().worker_steps) steps += each;
      const auto count = checkpoint.value().read("count");
      ASSERT_TRUE(count.ok()) << count.status().to_string();
      for (const float value : count.value().values<float>()) {
        EXPECT_EQ(-value, static_cast<double>(steps)) << stored.folder;
      }
    }
    EXPECT_THAT(worker_steps_at_the_end(), ::testing::Each(kSteps));
  }
  std::vector<int64_t> worker_steps_at_the_end() const {
    const auto checkpoint = fluid::io::CheckpointReader::open(of_step(path("saved-end"), kSteps));
    return checkpoint.ok() ? checkpoint.value().info().worker_steps : std::vector<int64_t>();
  }

  fs::path root_;
  int killed_ = 0;
  int launchers_ = 0;
};

TEST_P(Kills, LoseNothingAndCountNothingTwice) {
  const char* seed = std::getenv("FLEET_TEST_SEED");
  std::minstd_rand draw(seed == nullptr ? std::random_device()() : std::strtoul(seed, nullptr, 10));
  const int jobs = std::max(1, kills_of_each_form() / kKillsPerJob);
  for (int i = 0; i < jobs && !HasFailure(); ++i) {
    clean();
    kill_at_random(draw);
    if (HasFailure()) break;
    if (GetParam().proof == Proof::kBits) expect_bits();
    if (GetParam().proof == Proof::kCount) expect_counts();
  }
  EXPECT_GT(killed_ + launchers_, 0);
  std::printf("%s: %d jobs, %d processes and %d launchers killed\n", GetParam().name, jobs, killed_,
              launchers_);
}

INSTANTIATE_TEST_SUITE_P(Forms, Kills, ::testing::ValuesIn(kForms),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace fleet::testing

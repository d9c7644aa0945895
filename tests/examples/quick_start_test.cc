// The quick start as its users run it: real processes, real files.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "tests/testing/command.h"

namespace fleet {
namespace {

using fleet::testing::run_command;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kBin = FLEET_BINARY_DIR "/bin/";

class QuickStart : public ::testing::Test {
 protected:
  QuickStart() {
    folder_ = ::testing::TempDir() + "quick-start-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    // Root may run mpirun; nothing else of the environment names a role.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~QuickStart() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static std::string local() { return kBin + "local_trainer"; }
  static std::string trainer() { return kBin + "distributed_train"; }
  std::string servers(int workers, int server_num) const {
    return str_cat(kBin, "launch_ps --worker_num ", workers, " --server_num ", server_num,
                   " --log_dir ", path("logs"), " ", trainer());
  }
  std::string collective(int ranks, const std::string& program = "distributed_train") const {
    return str_cat(kBin, "launch --nproc_per_node ", ranks, " --log_dir ", path("logs"), " ", kBin,
                   program);
  }

  // Trains and returns the bytes of the parameter file.
  std::string parameters(const std::string& command, const std::string& flags) {
    const std::string model = path("model");
    std::filesystem::remove_all(model);
    const auto result = run_command(command + " " + flags + " --model_dir " + model, 120);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    return read(model + "/params.safetensors");
  }

  double accuracy(const std::string& command, int seed) {
    const std::string metrics = path("metrics.json");
    const auto result =
        run_command(str_cat(command, " --seed ", seed, " --metrics_file ", metrics), 120);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    if (result.code != 0) return 0;
    return nlohmann::json::parse(read(metrics)).at("accuracy").get<double>();
  }

  void expect_accuracy_for_20_seeds(const std::string& command) {
    std::vector<double> found;
    for (int seed = 1; seed <= 20; ++seed) found.push_back(accuracy(command, seed));
    const auto [low, high] = std::minmax_element(found.begin(), found.end());
    std::cout << "test accuracy over 20 seeds: " << 100 * *low << " to " << 100 * *high << " %\n";
    EXPECT_GE(*low, 0.96);
  }

  std::string logs() const {
    std::string all;
    if (!std::filesystem::exists(path("logs"))) return all;
    for (const auto& file : std::filesystem::directory_iterator(path("logs"))) {
      all += "\n" + file.path().filename().string() + ":\n" + read(file.path().string());
    }
    return all;
  }

  static std::string read(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
};

TEST_F(QuickStart, ServersGiveTheLocalRunsFile) {
  const std::string two = parameters(local(), "--steps 40 --shards 2");
  ASSERT_FALSE(two.empty());
  EXPECT_EQ(parameters(servers(2, 2), "--steps 40"), two);
  EXPECT_EQ(parameters(servers(2, 2), "--steps 40"), two) << "a repeated run";
  EXPECT_EQ(parameters(servers(2, 1), "--steps 40"), two);
  EXPECT_EQ(parameters(servers(2, 3), "--steps 40"), two);
  EXPECT_EQ(parameters(servers(1, 3), "--steps 40"), parameters(local(), "--steps 40 --shards 1"));
}

TEST_F(QuickStart, TheNumberOfWorkersDoesNotShowInTheFile) {
  const std::string four = parameters(local(), "--steps 40 --shards 4");
  ASSERT_FALSE(four.empty());
  EXPECT_EQ(parameters(servers(4, 1), "--steps 40"), four);
  EXPECT_EQ(parameters(servers(1, 1), "--steps 40 --shards 4"), four);
  EXPECT_EQ(parameters(servers(2, 1), "--steps 40 --shards 4"), four);
  EXPECT_EQ(parameters(collective(4), "--steps 40"), four);
  EXPECT_EQ(parameters(collective(2), "--steps 40 --shards 4"), four);
  EXPECT_EQ(parameters(collective(1), "--steps 40 --shards 4"), four);
}

TEST_F(QuickStart, CollectiveRanksGiveTheLocalRunsFile) {
  const std::string two = parameters(local(), "--steps 40 --shards 2");
  ASSERT_FALSE(two.empty());
  EXPECT_EQ(parameters(collective(2), "--steps 40"), two);
  EXPECT_EQ(parameters(collective(2, "collective_train"), "--steps 40"), two);
}

TEST_F(QuickStart, WithoutRoleVariablesTheDistributedTrainerIsLocal) {
  EXPECT_EQ(parameters(trainer(), "--steps 40 --shards 2"),
            parameters(local(), "--steps 40 --shards 2"));
}

TEST_F(QuickStart, PlainMpirunIsCollective) {
  const auto result = run_command("mpirun -np 2 --oversubscribe " + trainer() + " --steps 40");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("collective: 40 steps"));
}

TEST_F(QuickStart, TheSymetricRoleMakerPairsServersAndWorkersUnderMpirun) {
  const auto result = run_command("mpirun -np 2 --oversubscribe " + trainer() +
                                  " --steps 40 --role_maker mpi_symetric");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("parameter_server: 40 steps"));
}

TEST_F(QuickStart, EveryModeGoesOnFromASavedModel) {
  const std::string start = path("start");
  ASSERT_EQ(run_command(local() + " --steps 20 --shards 2 --model_dir " + start).code, 0);
  const std::string flags = "--steps 20 --shards 2 --seed 2 --init_from " + start;
  const std::string expected = parameters(local(), flags);
  EXPECT_NE(expected, parameters(local(), "--steps 20 --shards 2 --seed 2"));
  EXPECT_EQ(parameters(servers(2, 2), flags), expected);
  EXPECT_EQ(parameters(collective(2), flags), expected);
}

TEST_F(QuickStart, SyntheticRowsTrainInEveryMode) {
  for (const std::string& command : {local(), servers(2, 2), collective(2)}) {
    const auto result = run_command(command + " --synthetic --steps 50");
    EXPECT_EQ(result.code, 0) << result.output << logs();
  }
}

TEST_F(QuickStart, MistakesAreNamedWithTheirFix) {
  const auto flag = run_command(local() + " --step 3 --bach_size 2");
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.output, HasSubstr("did you mean '--batch_size'"));
  const auto uneven = run_command(local() + " --shards 3");
  EXPECT_EQ(uneven.code, 1);
  EXPECT_THAT(uneven.output, HasSubstr("a multiple of 3 shards"));
  EXPECT_THAT(uneven.output, Not(HasSubstr("terminate called")));
  const auto role = run_command("TRAINING_ROLE=TRAINER " + trainer() + " --steps 3");
  EXPECT_EQ(role.code, 2);
  EXPECT_THAT(role.output, HasSubstr("fix:"));
}

TEST_F(QuickStart, LocalAccuracyHoldsForTwentySeeds) {
  expect_accuracy_for_20_seeds(local());
}

TEST_F(QuickStart, ServerAccuracyHoldsForTwentySeeds) {
  expect_accuracy_for_20_seeds(servers(2, 2));
}

TEST_F(QuickStart, CollectiveAccuracyHoldsForTwentySeeds) {
  expect_accuracy_for_20_seeds(collective(2));
}

}  // namespace
}  // namespace fleet

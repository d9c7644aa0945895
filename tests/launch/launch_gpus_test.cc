// A rank for each GPU, in real processes: what the launcher tells them, and the quick start on
// devices that launch gave its ranks. The devices are the host's (tests/testing/cuda_on_host), two
// in each process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/launch/launcher_process.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::launch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kTrainer = fleet::testing::binary_path("bin/collective_train_host_gpus");
constexpr const char* kTell =
    R"(echo "GPUs ${CUDA_VISIBLE_DEVICES-unset}, own ${FLAGS_selected_gpus-unset}")";

Environment with_gpus(const std::string& visible) {
  return variable("CUDA_VISIBLE_DEVICES", visible);
}

// What each rank is told, of a launcher with these options.
std::vector<std::string> told(const std::string& visible, std::vector<std::string> options,
                              int ranks) {
  const Workplace place;
  options.push_back(place.script(kTell));
  LauncherProcess launcher(place, "launch", std::move(options), with_gpus(visible));
  EXPECT_EQ(launcher.wait(), 0) << launcher.output();
  std::vector<std::string> logs;
  logs.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    logs.push_back(place.read(str_cat("logs/workerlog.", rank)));
  }
  EXPECT_EQ(place.read(str_cat("logs/workerlog.", ranks)), "") << "there is another rank";
  return logs;
}

std::vector<std::string> each_its_own(const std::string& gpus, int ranks) {
  std::vector<std::string> logs;
  logs.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    logs.push_back(str_cat("GPUs ", gpus, ", own ", rank, "\n"));
  }
  return logs;
}

class LaunchGpus : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, LaunchGpus, ::testing::Values("mpi", "sockets"));

TEST_P(LaunchGpus, TellsEachRankItsOwn) {
  const std::string over = GetParam();
  EXPECT_EQ(told("4,5,6", {"--collectives", over, "--gpus", "6,4"}, 2), each_its_own("6,4", 2));
  EXPECT_EQ(told("4,5,6", {"--collectives", over}, 3), each_its_own("4,5,6", 3));
}

TEST(LaunchGpusOf, SoManyRanksAreTheFirst) {
  EXPECT_EQ(told("4,5,6", {"--nproc_per_node", "2"}, 2), each_its_own("4,5", 2));
  const std::string nothing = "GPUs 4,5,6, own unset\n";
  EXPECT_EQ(told("4,5,6", {"--nproc_per_node", "4"}, 4), std::vector<std::string>(4, nothing));
}

TEST(LaunchGpusOf, ThatAreNotThereNothingStarts) {
  const auto refusal = [](const std::string& visible, std::vector<std::string> options) {
    const Workplace place;
    options.push_back(place.script(kTell));
    LauncherProcess launcher(place, "launch", std::move(options), with_gpus(visible));
    EXPECT_EQ(launcher.wait(), 2);
    EXPECT_EQ(place.read("logs/workerlog.0"), "");
    return launcher.output();
  };
  EXPECT_THAT(refusal("4,5", {"--gpus", "4,7"}), AllOf(HasSubstr("'7'"), HasSubstr("4,5")));
  EXPECT_THAT(refusal("4,5", {"--selected_gpus", "4,4"}), HasSubstr("named twice"));
  EXPECT_THAT(refusal("4,5", {"--gpus", "4,5", "--nproc_per_node", "3"}), HasSubstr("disagree"));
  EXPECT_THAT(refusal("", {"--gpus", "0"}), HasSubstr("hides all GPUs"));
  EXPECT_THAT(refusal("4", {"--gpus", ""}), HasSubstr("no GPU is named"));
}

// The options of a quick-start trainer that saves its model in the folder.
std::vector<std::string> training(const std::string& place, const std::string& model) {
  return {"--place", place, "--steps", "3", "--shards", "2", "--model_dir", model};
}

std::string own_model(const Workplace& place, const std::string& where) {
  std::string model = place.path("local_" + where.substr(where.size() - 1));
  const auto result =
      fleet::testing::run_command(fleet::testing::binary_path("bin/local_trainer_host_gpus ") +
                                  join(training(where, model), " "));
  EXPECT_EQ(result.code, 0) << result.output;
  return model;
}

TEST(LaunchGpusOf, RanksOnTheirOwnGpusTrainAsOneAlone) {
  const Workplace place;
  std::vector<std::string> arguments = {"--gpus", "6,4", kTrainer};
  const std::string model = place.path("model");
  for (const std::string& each : training("gpu", model)) arguments.push_back(each);
  LauncherProcess launcher(place, "launch", arguments, with_gpus("4,5,6"));
  ASSERT_EQ(launcher.wait(), 0) << launcher.output() << place.read("logs/workerlog.1");
  for (const char* where : {"gpu:0", "gpu:1"}) {
    const auto same =
        fleet::testing::run_command("diff -r " + own_model(place, where) + " " + model);
    EXPECT_EQ(same.code, 0) << where << ": " << same.output;
  }
}

// Three ranks, and two devices.
TEST(LaunchGpusOf, ARankNamesTheOneThatItLacks) {
  const Workplace place;
  LauncherProcess launcher(place, "launch",
                           {"--gpus", "4,5,6", kTrainer, "--place", "gpu", "--steps", "2"},
                           with_gpus("4,5,6"));
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_THAT(launcher.output(), HasSubstr("worker 2"));
  EXPECT_THAT(place.read("logs/workerlog.2"),
              AllOf(HasSubstr("there is no such CUDA device"), HasSubstr("place cuda:2")));
}

}  // namespace
}  // namespace fleet::launch::testing

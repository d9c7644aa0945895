#include "launch/process/gpus.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/command_line.h"

namespace fleet::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

Environment visible(const std::string& list) {
  return Environment({{"CUDA_VISIBLE_DEVICES", list}});
}

CommandLine parse(std::vector<std::string> arguments, const Environment& environment) {
  arguments.emplace_back("prog");
  return parse_command_line(Launcher::kCollective, arguments, environment);
}

std::string refusal(std::vector<std::string> arguments, const Environment& environment) {
  try {
    parse(std::move(arguments), environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Gpus, AreThoseThatCudaShows) {
  EXPECT_THAT(visible_gpus(visible("4,6")), Optional(ElementsAre("4", "6")));
  EXPECT_THAT(visible_gpus(visible("GPU-8a1f, 2")), Optional(ElementsAre("GPU-8a1f", "2")));
  EXPECT_THAT(visible_gpus(visible("1,-1,2")), Optional(ElementsAre("1")));
  EXPECT_THAT(visible_gpus(visible("")), Optional(IsEmpty()));
  EXPECT_THAT(visible_gpus(visible("NoDevFiles")), Optional(IsEmpty()));
}

TEST(Gpus, AreTheDriversDevicesWithoutTheVariable) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "gpus_test_devices";
  std::filesystem::create_directories(folder);
  for (const char* file : {"nvidia0", "nvidia5", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(folder / file) << "";
  }
  EXPECT_THAT(visible_gpus(Environment(), folder.string()), Optional(ElementsAre("0", "1")));
  EXPECT_THAT(visible_gpus(visible(""), folder.string()), Optional(IsEmpty()));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(visible_gpus(Environment(), folder.string()), std::nullopt);
}

TEST(Gpus, ARankForEach) {
  EXPECT_THAT(parse({"--gpus", "4,6"}, visible("4,5,6")).gpus, ElementsAre("4", "6"));
  EXPECT_EQ(parse({"--gpus", "all"}, visible("4,5,6")).workers, 3);
  EXPECT_EQ(parse({"--selected_gpus", "5"}, visible("4,5,6")).workers, 1);
}

TEST(Gpus, WithoutACountAreAllThatThereAre) {
  EXPECT_THAT(parse({}, visible("4,5,6")).gpus, ElementsAre("4", "5", "6"));
  EXPECT_EQ(parse({}, visible("4,5,6")).workers, 3);
  EXPECT_EQ(parse({}, visible("-1")).workers, 2);
}

TEST(Gpus, AreTheFirstOnesOfSoManyRanks) {
  const CommandLine counted = parse({"--nproc_per_node", "2"}, visible("4,5,6"));
  EXPECT_EQ(counted.workers, 2);
  EXPECT_THAT(counted.gpus, ElementsAre("4", "5"));
  EXPECT_THAT(parse({"--nproc_per_node", "3"}, visible("4,5,6")).gpus, ElementsAre("4", "5", "6"));
  const CommandLine many = parse({"--nproc_per_node", "4"}, visible("4,5,6"));
  EXPECT_EQ(many.workers, 4);
  EXPECT_THAT(many.gpus, IsEmpty());
}

TEST(Gpus, OfOtherHostsAreTheirLaunchersBusiness) {
  const CommandLine line = parse({"--hosts", "a,b", "--gpus", "7"}, visible("4,5,6"));
  EXPECT_THAT(line.gpus, IsEmpty());
  EXPECT_THAT(line.options_of_hosts, ElementsAre("--gpus", "7"));
}

TEST(Gpus, EachRankFindsItsOwn) {
  const Environment second = gpu_variables({"4", "6"}, 1);
  EXPECT_EQ(second.get("CUDA_VISIBLE_DEVICES"), "4,6");
  EXPECT_EQ(second.get("FLAGS_selected_gpus"), "1");
}

TEST(Gpus, WrongOnesAreRefused) {
  EXPECT_THAT(refusal({"--gpus", "4,7"}, visible("4,5,6")),
              ::testing::AllOf(HasSubstr("--gpus"), HasSubstr("'7'"), HasSubstr("4,5,6")));
  EXPECT_THAT(refusal({"--gpus", "4,4"}, visible("4,5")), HasSubstr("named twice"));
  for (const char* list : {"all", "0", "0,1"}) {
    EXPECT_THAT(refusal({"--gpus", list}, visible("")), HasSubstr("hides all GPUs"));
  }
  EXPECT_THAT(refusal({"--gpus", ""}, visible("4,5")), HasSubstr("no GPU is named"));
  EXPECT_THAT(refusal({"--gpus", "4,,5"}, visible("4,5")), HasSubstr("''"));
  EXPECT_THAT(refusal({"--gpus", "0", "--selected_gpus", "0"}, visible("0")), HasSubstr("both"));
  EXPECT_THAT(refusal({"--gpus", "4,6", "--nproc_per_node", "3"}, visible("4,6")),
              HasSubstr("disagree"));
}

TEST(Gpus, ThatNobodyKnowsOfAreTakenByNumber) {
  EXPECT_THAT(select_gpus("0, 3", "--gpus", std::nullopt), ElementsAre("0", "3"));
  for (const char* list : {"first", "-1", "0,-1", "", "all"}) {
    EXPECT_THROW(select_gpus(list, "--gpus", std::nullopt), UsageError) << list;
  }
}

}  // namespace
}  // namespace fleet::launch

// The program itself: commands and exit codes.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::inspect {
namespace {

using fleet::testing::CommandResult;
using fluid::NamedTensors;
using fluid::Tensor;
using fluid::io::CheckpointStore;
using fluid::testing::commit_checkpoint;
using fluid::testing::sample_info;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class FleetInspect : public ::testing::Test {
 protected:
  FleetInspect() {
    commit_checkpoint(store_, {{"fc_0.w_0", Tensor::from<float>({3, -4}, {2})}}, sample_info(100));
    commit_checkpoint(store_, {{"fc_0.w_0", Tensor::from<float>({3, -5}, {2})}}, sample_info(200));
  }
  CommandResult inspect(const std::string& arguments) const {
    return fleet::testing::run_command("cd " + directory_.path().string() + " && " +
                                       fleet::testing::binary_path("bin/fleet-inspect ") +
                                       arguments);
  }
  Json json_of(const std::string& arguments) const {
    return Json::parse(inspect(arguments).output);
  }
  std::filesystem::path part(int64_t step) const {
    return store_.folder_of(step) / "part-0-of-2.safetensors";
  }

  const fluid::testing::TemporaryDirectory directory_;
  const CheckpointStore store_{directory_.path() / "checkpoints"};
};

TEST_F(FleetInspect, Lists) {
  std::filesystem::remove(part(100));
  fluid::testing::write_parts(store_.unfinished(300, "job"), 1, {});
  const CommandResult result = inspect("list checkpoints");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("2 checkpoints"), HasSubstr("4 x 2"), HasSubstr("sync"),
                    HasSubstr("step-000000100 is damaged"), HasSubstr("part-0-of-2"),
                    HasSubstr("step-000000300.job.tmp"), Not(HasSubstr("\x1b"))));
  EXPECT_LT(result.output.find("step-000000200"), result.output.find("step-000000100"));
  const Json json = json_of("list --json checkpoints");
  EXPECT_EQ(json["checkpoints"][0]["step"], 200);
  EXPECT_EQ(json["checkpoints"][1]["whole"], false);
  EXPECT_EQ(json["unfinished"].size(), 1U);
}

TEST_F(FleetInspect, Shows) {
  const CommandResult plain = inspect("show checkpoints/step-000000100/");
  EXPECT_EQ(plain.code, 0) << plain.output;
  EXPECT_THAT(plain.output,
              AllOf(HasSubstr("readers/train"), HasSubstr("1200"), HasSubstr("größer\n"),
                    HasSubstr("fc_0.w_0"), HasSubstr("float32"), Not(HasSubstr("L2 norm"))));
  EXPECT_THAT(inspect("show --norms checkpoints/step-000000100").output,
              AllOf(HasSubstr("L2 norm"), HasSubstr(" 5 "), HasSubstr("-4")));
  const Json json = json_of("show checkpoints --norms --json");
  EXPECT_EQ(json["step"], 200);
  EXPECT_EQ(json["readers"]["train"], 1200);
  EXPECT_EQ(json["tensors"][0]["min"], -5);
}

TEST_F(FleetInspect, Verifies) {
  const CommandResult whole = inspect("verify checkpoints");
  EXPECT_EQ(whole.code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("whole"));
  fluid::testing::flip_bit(part(100), std::filesystem::file_size(part(100)) - 1);
  const CommandResult damaged = inspect("verify checkpoints");
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.output,
              AllOf(HasSubstr("step-000000100: damaged"), HasSubstr("step-000000200: whole"),
                    HasSubstr("fc_0.w_0"), HasSubstr("part-0-of-2.safetensors")));
  EXPECT_EQ(inspect("verify checkpoints/step-000000200").code, 0);
  EXPECT_EQ(inspect("verify checkpoints/step-000000100").code, 1);
  EXPECT_EQ(json_of("verify checkpoints --json")["checkpoints"][1]["damage"].size(), 1U);
}

TEST_F(FleetInspect, Compares) {
  const CommandResult same = inspect("compare checkpoints checkpoints/step-000000200");
  EXPECT_EQ(same.code, 0) << same.output;
  EXPECT_THAT(same.output, HasSubstr("1 tensor is equal, 0 are not."));
  const CommandResult other = inspect("compare checkpoints checkpoints/step-000000100");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, AllOf(HasSubstr("step"), HasSubstr("fc_0.w_0"), HasSubstr("0.2")));
  const Json json = json_of("compare checkpoints checkpoints/step-000000100 --json");
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["tensors"][0]["absolute"], 1);
}

TEST_F(FleetInspect, SaysWhatIsWrongWithItsArguments) {
  const auto expect = [this](int code, const std::string& arguments, const std::string& words) {
    const CommandResult result = inspect(arguments);
    EXPECT_EQ(result.code, code) << arguments;
    EXPECT_THAT(result.output, HasSubstr(words)) << arguments;
  };
  expect(2, "", "a command is missing");
  expect(2, "lst checkpoints", "did you mean 'list'");
  expect(2, "list", "list FOLDER");
  expect(2, "show checkpoints checkpoints", "show CHECKPOINT");
  expect(2, "compare checkpoints", "compare A B");
  expect(2, "show --norm checkpoints", "did you mean '--norms'");
  expect(2, "list --norms checkpoints", "belongs to show");
  expect(1, "show checkpoints/step-000000101", "did you mean 'step-000000100'");
  expect(1, "list nowhere", "nowhere");
  expect(0, "--version", "fleet-inspect 0.");
  expect(0, "--help", "compare A B");
}

TEST_F(FleetInspect, DoesWhatItsHelpShows) {
  const std::string help = inspect("--help").output;
  const std::string marker = "Example:\n  fleet-inspect ";
  const size_t example = help.find(marker);
  ASSERT_NE(example, std::string::npos) << help;
  const std::string rest = help.substr(example + marker.size());
  EXPECT_THAT(inspect(rest.substr(0, rest.find('\n'))).output, HasSubstr("L2 norm"));
}

}  // namespace
}  // namespace fleet::inspect

#include "launch/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandLine parse_ps(const std::vector<std::string>& arguments) {
  return parse_command_line(Launcher::kParameterServer, arguments, Environment());
}

std::string refusal(Launcher launcher, const std::vector<std::string>& arguments) {
  try {
    parse_command_line(launcher, arguments, Environment());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CommandLine, OwnOptionsEndAtTheProgram) {
  const CommandLine line =
      parse_ps({"--worker_num", "3", "--server_num=1", "--tee", "prog", "--worker_num", "9"});
  EXPECT_EQ(line.workers, 3);
  EXPECT_EQ(line.servers, 1);
  EXPECT_TRUE(line.supervision.tee);
  EXPECT_THAT(line.command, ElementsAre("prog", "--worker_num", "9"));
}

TEST(CommandLine, TwoDashesEndTheOwnOptions) {
  EXPECT_THAT(parse_ps({"--tee", "--", "--odd", "--"}).command, ElementsAre("--odd", "--"));
}

TEST(CommandLine, DefaultsAreTwoAndTwo) {
  const CommandLine line = parse_ps({"prog"});
  EXPECT_EQ(line.workers, 2);
  EXPECT_EQ(line.servers, 2);
  EXPECT_EQ(line.log_dir, "logs");
  EXPECT_FALSE(line.start_port.has_value());
}

TEST(CommandLine, AnUnknownOptionNamesTheNearest) {
  EXPECT_THAT(refusal(Launcher::kParameterServer, {"--worker_nun", "2", "prog"}),
              AllOf(HasSubstr("'--worker_nun'"), HasSubstr("did you mean '--worker_num'")));
  EXPECT_THAT(refusal(Launcher::kCollective, {"--nproc_per_nod=2", "prog"}),
              HasSubstr("did you mean '--nproc_per_node'"));
}

TEST(CommandLine, AbbreviationsAreNotGuessed) {
  EXPECT_THAT(refusal(Launcher::kParameterServer, {"--worker=2", "prog"}), HasSubstr("unknown"));
}

TEST(CommandLine, WrongValuesAreRefused) {
  const auto ps = Launcher::kParameterServer;
  EXPECT_THAT(refusal(ps, {"--worker_num", "0", "prog"}), HasSubstr("--worker_num"));
  EXPECT_THAT(refusal(ps, {"--worker_num", "two", "prog"}), HasSubstr("two"));
  EXPECT_THAT(refusal(ps, {"--start_port", "65535", "prog"}), HasSubstr("--start_port"));
  EXPECT_THAT(refusal(ps, {"--endpoints", "a:1,b:2", "--server_num", "3", "prog"}),
              HasSubstr("disagree"));
  EXPECT_THAT(refusal(ps, {"--endpoints", "a:1", "--start_port", "9", "prog"}),
              HasSubstr("exclude"));
  EXPECT_THAT(refusal(ps, {"--worker_num", "2"}), HasSubstr("no program"));
  EXPECT_THAT(refusal(ps, {}), HasSubstr("no program"));
  EXPECT_THAT(refusal(ps, {"-x", "prog"}), HasSubstr("unknown option '-x'"));
}

TEST(CommandLine, EndpointsAndGpusGiveTheCounts) {
  EXPECT_EQ(parse_ps({"--endpoints", "a:1,b:2,c:3", "prog"}).servers, 3);
  const CommandLine line =
      parse_command_line(Launcher::kCollective, {"--selected_gpus", "0,2", "prog"}, Environment());
  EXPECT_EQ(line.workers, 2);
  EXPECT_THAT(line.gpus, ElementsAre("0", "2"));
}

TEST(CommandLine, TheHeartbeatTimeoutFollowsTheJobs) {
  const Environment environment = testing::variable("FLEET_HEARTBEAT_TIMEOUT_MS", "3000");
  EXPECT_EQ(parse_command_line(Launcher::kCollective, {"prog"}, environment)
                .supervision.heartbeat_timeout,
            std::chrono::seconds(3));
}

class Binary : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, Binary, ::testing::Values("launch", "launch_ps"));

TEST_P(Binary, HelpShowsOptionsAndAnExample) {
  testing::Workplace place;
  testing::LauncherProcess launcher(place, GetParam(), {"--help"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("--log_dir"), HasSubstr("Example:")));
}

TEST_P(Binary, VersionIsPrinted) {
  testing::Workplace place;
  testing::LauncherProcess launcher(place, GetParam(), {"--version"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), HasSubstr(std::string(GetParam()) + " 0."));
}

TEST_P(Binary, AnUnknownOptionHasExitCodeTwo) {
  testing::Workplace place;
  testing::LauncherProcess launcher(place, GetParam(), {"--log_dirr", "x", "prog"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.output(), HasSubstr("did you mean '--log_dir'"));
}

}  // namespace
}  // namespace fleet::launch

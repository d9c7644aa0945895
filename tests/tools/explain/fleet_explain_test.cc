// The program itself: exit codes, forms, and the programs of real jobs.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace {

using fleet::testing::binary_path;
using fleet::testing::CommandResult;
using fleet::testing::run_command;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

class FleetExplain : public ::testing::Test {
 protected:
  FleetExplain() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string(test->name()) + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  ~FleetExplain() override { fs::remove_all(folder_); }

  // The quick start's programs, as a local run of few steps writes them to the folder "programs".
  void dump(const std::string& launcher = "") const {
    const std::string trainer = binary_path("bin/distributed_train") + " --steps 2";
    const CommandResult result =
        run_command("cd " + folder_.string() + " && FLEET_DUMP_PROGRAM=programs " +
                    (launcher.empty() ? "" : binary_path("bin/" + launcher) + " ") + trainer);
    ASSERT_EQ(result.code, 0) << result.output;
  }
  CommandResult explain(const std::string& arguments) const {
    return run_command("cd " + folder_.string() + " && LC_ALL=C.UTF-8 " +
                       binary_path("bin/fleet-explain ") + arguments);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    std::ostringstream text;
    text << file.rdbuf();
    return std::move(text).str();
  }

  fs::path folder_;
};

TEST_F(FleetExplain, ExplainsALocalProgramForAnyCluster) {
  dump();
  const CommandResult text = explain("programs --trainers 3 --servers 4");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("programs: synchronous parameter servers, 3 trainers, 4 servers"),
                    HasSubstr("Tells every server"), Not(HasSubstr("\x1b"))));
  const CommandResult geo =
      explain("programs --mode geo --set geo_sgd_need_push_nums=7 --min_block_size 10000");
  EXPECT_THAT(geo.output, AllOf(HasSubstr("every 7 steps"), HasSubstr("min_block_size = 10000")));
}

TEST_F(FleetExplain, WritesEveryForm) {
  dump();
  EXPECT_EQ(explain("--json --output all.json programs").code, 0);
  EXPECT_EQ(nlohmann::json::parse(read("all.json"))["servers"].size(), 2u);
  EXPECT_EQ(explain("--dot --output all.dot programs").code, 0);
  EXPECT_THAT(read("all.dot"), HasSubstr("digraph"));
  EXPECT_THAT(explain("--json --dot programs").output, HasSubstr("at most one of them"));
}

TEST_F(FleetExplain, ShowsWhatRunsOnAGpuWithoutOne) {
  dump();
  EXPECT_THAT(explain("--place gpu:1 programs").output,
              AllOf(HasSubstr("Where ops run: local on cuda:1"), HasSubstr("29 of 29 ops"),
                    HasSubstr("On the host: 14, the job's runtime carries it out")));
  EXPECT_THAT(explain("--place cpu programs").output, Not(HasSubstr("Where ops run")));
  EXPECT_EQ(explain("--place gpu --html --output job.html programs").code, 0);
  EXPECT_THAT(read("job.html"), HasSubstr("Where ops run: trainer 0 on cuda:0"));
}

TEST_F(FleetExplain, DoesWhatItsHelpShows) {
  dump();
  const std::string help = explain("--help").output;
  const std::string marker = "Example:\n  fleet-explain ";
  const size_t example = help.find(marker);
  ASSERT_NE(example, std::string::npos) << help;
  const std::string rest = help.substr(example + marker.size());
  const CommandResult result = explain(rest.substr(0, rest.find('\n')));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(read("job.html"), HasSubstr("</html>"));
}

// What it shows of a job is what the processes of that job ran.
TEST_F(FleetExplain, ShowsTheProgramsThatServersAndTrainersRan) {
  dump("launch_ps --worker_num 2 --server_num 2");
  const CommandResult text = explain("programs");
  EXPECT_EQ(text.code, 0) << text.output;
  EXPECT_THAT(text.output,
              HasSubstr("The job ran these very programs: trainer 0, server 0, server 1."));
  EXPECT_THAT(explain("programs --trainer 1").output, HasSubstr("trainer 1, server 0, server 1."));
  // Of another cluster nothing is said of the job.
  EXPECT_THAT(explain("programs --trainers 5").output, Not(HasSubstr("The job ran")));
}

TEST_F(FleetExplain, ShowsTheProgramsThatRanksRan) {
  dump("launch --nproc_per_node 2");
  EXPECT_THAT(explain("programs").output,
              AllOf(HasSubstr("collective all-reduce, 2 ranks"),
                    HasSubstr("The job ran these very programs: rank 0.")));
}

TEST_F(FleetExplain, SaysWhatIsWrongWithItsArguments) {
  dump();
  const auto expect_usage = [this](const std::string& arguments, const std::string& words) {
    const CommandResult result = explain(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.output, HasSubstr(words));
  };
  expect_usage("programs --mode asynk", "did you mean");
  expect_usage("programs --sevrers 2", "--servers");
  expect_usage("programs --set min_blok_size=9000", "min_block_size");
  expect_usage("programs --set slice_var_up=perhaps", "a bool");
  expect_usage("programs --place gpuu", "cpu, gpu or gpu:N");
  expect_usage("programs --trainers 0", "");
  expect_usage("", "input");
  const CommandResult missing = explain("nowhere.json");
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.output, HasSubstr("nowhere.json"));
}

}  // namespace

// The program itself: exit codes, files and messages.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <memory>
#include <sys/wait.h>

#include "tests/testing/paths.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome run(const std::string& arguments) {
  const std::string command =
      fleet::testing::binary_path("bin/fleet_report ") + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome;
  char buffer[512];
  while (std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe)) {
    outcome.output.append(buffer, size);
  }
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

class FleetReport : public ::testing::Test {
 protected:
  FleetReport() : folder_(fs::temp_directory_path() / folder_name()) {
    fs::create_directories(folder_);
    write("local", "0.5");
    write("collective", "0.5");
    write("other", "0.75");
  }
  ~FleetReport() override { fs::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string metrics(const std::string& mode) const { return file(mode + ".json"); }

 private:
  static std::string folder_name() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return std::string("fleet_report_") + test->name() + std::to_string(getpid());
  }
  void write(const std::string& mode, const std::string& last) {
    std::ofstream(metrics(mode))
        << R"({"mode":")" << mode
        << R"(","processes":1,"cores":2,"steps":2,"steps_per_s":10,"first_loss":1,)"
        << R"("last_loss":)" << last
        << R"(,"accuracy":1,"seconds_to_first_step":0.1,"loss":[[0,1],[1,)" << last << "]]}";
  }
  fs::path folder_;
};

TEST_F(FleetReport, WritesSvgAndSummaryIntoNewFolders) {
  const Outcome outcome = run("--svg " + file("new/q.svg") + " --summary " + file("new/s.json") +
                              " " + metrics("local") + " " + metrics("collective"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("Largest difference between the curves: 0\n"));
  EXPECT_GT(fs::file_size(file("new/q.svg")), 1000u);
  EXPECT_GT(fs::file_size(file("new/s.json")), 100u);
}

TEST_F(FleetReport, FailsWhenCurvesDifferByMoreThanAllowed) {
  const std::string files = metrics("local") + " " + metrics("other");
  EXPECT_EQ(run("--max_difference 0.3 " + files).exit_code, 0);
  const Outcome outcome = run("--max_difference 0.2 " + files);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("0.25 (local and other, step 1)"),
                                    HasSubstr("differ by more than 0.2")));
}

TEST_F(FleetReport, AnUnknownOptionNamesTheNearest) {
  const Outcome outcome = run("--sumary x " + metrics("local"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("did you mean '--summary'"));
}

TEST_F(FleetReport, AMissingFileIsAFailureThatNamesIt) {
  const Outcome outcome = run(file("absent.json"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("absent.json"));
}

TEST_F(FleetReport, HelpAndVersionNeedNoFiles) {
  const Outcome help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, AllOf(HasSubstr("Example:"), HasSubstr("--max_difference")));
  EXPECT_EQ(run("--version").exit_code, 0);
}

}  // namespace

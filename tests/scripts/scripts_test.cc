// What the scripts say without doing anything: help, the apt line, wrong arguments.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <sstream>
#include <string>
#include <sys/wait.h>

#include "tests/testing/paths.h"

namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome run(const std::string& command, const std::string& variables = "") {
  const std::string script = fleet::testing::source_path("scripts/") + command;
  FILE* pipe = popen((variables + " " + script + " 2>&1 </dev/null").c_str(), "r");
  Outcome outcome;
  char buffer[512];
  while (std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe)) {
    outcome.output.append(buffer, size);
  }
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

class EveryScript : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryScript, ExplainsItself) {
  const Outcome outcome = run(std::string(GetParam()) + " --help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("Usage: scripts/"), HasSubstr(GetParam()),
                                    Not(HasSubstr("#")), Not(HasSubstr("shellcheck"))));
}

INSTANTIATE_TEST_SUITE_P(Scripts, EveryScript,
                         ::testing::Values("install_dependencies.sh", "quickstart.sh", "test.sh",
                                           "lint.sh", "sanitize.sh", "bench.sh", "package.sh",
                                           "gpu_run.sh"),
                         [](const auto& script) {
                           const std::string name = script.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(InstallDependencies, NoInstallNamesPackagesReasonsAndTheAptLine) {
  const Outcome outcome = run("install_dependencies.sh --no-install");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("libdnnl-dev"), HasSubstr("oneDNN: matrix products on the CPU"),
                    HasSubstr("apt-get install -y --no-install-recommends g++ cmake"),
                    HasSubstr("libgtest-dev"), Not(HasSubstr("libtorch-dev"))));
}

TEST(InstallDependencies, GroupsChooseWhatIsNamed) {
  const Outcome outcome = run("install_dependencies.sh --no-install bench");
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("libtorch-dev"), HasSubstr("libdnnl-dev"),
                                    Not(HasSubstr("clang-tidy"))));
}

TEST(QuickStart, NoInstallStopsBeforeAnythingIsBuilt) {
  const Outcome outcome = run("quickstart.sh --no-install");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("apt-get install"), Not(HasSubstr("Building"))));
}

TEST(Scripts, AnUnknownArgumentIsWrongUsage) {
  for (const char* script :
       {"install_dependencies.sh", "quickstart.sh", "bench.sh", "package.sh", "gpu_run.sh"}) {
    const Outcome outcome = run(std::string(script) + " --fast");
    EXPECT_EQ(outcome.exit_code, 2) << script;
    EXPECT_THAT(outcome.output, HasSubstr("unknown argument '--fast'")) << script;
  }
}

// A program that says its name and counts its runs.
void write_program(const fs::path& file, const std::string& end) {
  std::ofstream(file) << "#!/bin/sh\necho ran " << file.filename().string() << "\necho >> "
                      << file.string() << ".runs\n"
                      << end << "\n";
  fs::permissions(file, fs::perms::owner_all);
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// With stubs in place of the device's programs.
TEST(GpuRun, RunsAgainOnlyWhatHasNotPassed) {
  const fs::path place = fs::path(::testing::TempDir()) / "gpu_run_test";
  fs::remove_all(place);
  fs::create_directories(place / "bin");
  for (const char* program : {"nvidia-smi", "compute-sanitizer"}) {
    write_program(place / program, "");
  }
  write_program(place / "bin/cuda_kernels_test", "");
  write_program(place / "bin/cuda_queue_test", "exit 3");
  const std::string path = "PATH=" + place.string() + ":$PATH";
  const std::string command = "gpu_run.sh --part 1 " + place.string();
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = run(command, path);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_THAT(text_of(place / "gpu_run/report.txt"),
                AllOf(HasSubstr("1 cuda_kernels_test                passed"),
                      HasSubstr("1 cuda_queue_test                  failed (3)"),
                      HasSubstr("2 cuda_queue_test.memcheck         not run"),
                      HasSubstr("3 ranks_2                          not run")));
  }
  EXPECT_EQ(text_of(place / "bin/cuda_kernels_test.runs"), "\n");
  EXPECT_EQ(text_of(place / "bin/cuda_queue_test.runs"), "\n\n");
  write_program(place / "bin/cuda_queue_test", "");
  EXPECT_EQ(run(command, path).exit_code, 0);
  fs::remove_all(place);
}

TEST(GpuRun, NeedsADriver) {
  const Outcome outcome = run("gpu_run.sh build/cuda", "PATH=/usr/bin:/bin");
  if (outcome.output.find("index, name") != std::string::npos) GTEST_SKIP() << "there is a driver";
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("no NVIDIA driver"));
}

}  // namespace

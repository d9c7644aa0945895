// What the scripts say without doing anything: help, the apt line, wrong arguments.
#include <csignal>
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
class GpuRun : public ::testing::Test {
 protected:
  GpuRun() {
    std::string folder = ::testing::TempDir() + "gpu-run-XXXXXX";
    place_ = ::mkdtemp(folder.data());
    fs::create_directories(place_ / "bin");
    for (const char* program : {"nvidia-smi", "compute-sanitizer"}) {
      write_program(place_ / program, "");
    }
    for (const char* program :
         {"cuda_kernels_test", "cuda_queue_test", "local_trainer", "collective_train",
          "distributed_train", "launch", "launch_ps", "fleet_agent", "bench_gpu", "bench_nccl",
          "bench_updates", "bench_threads", "gemm_table"}) {
      write_program(place_ / "bin" / program, kStub);
    }
  }
  ~GpuRun() override { fs::remove_all(place_); }

  Outcome run_it(const std::string& options, const std::string& environment = "") const {
    return run("gpu_run.sh " + options + " " + place_.string(),
               environment + " PATH=" + place_.string() + ":$PATH");
  }
  std::string report() const { return text_of(place_ / "gpu_run/report.txt"); }
  // A line for each.
  std::string runs_of(const std::string& program) const {
    return text_of(place_ / ("bin/" + program + ".runs"));
  }

  // Makes what is asked for by these options.
  static constexpr const char* kStub = R"(while [ $# -gt 0 ]; do
  case $1 in
    --model_dir) mkdir -p "$2" && echo weights > "$2/w" ;;
    --log_dir) mkdir -p "$2" && echo "gradients on devices are summed by NCCL" > "$2/log" ;;
  esac
  shift
done)";

  fs::path place_;
};

TEST_F(GpuRun, RunsAgainOnlyWhatHasNotPassed) {
  write_program(place_ / "bin/cuda_queue_test", "exit 3");
  for (int time = 0; time < 2; ++time) {
    const Outcome outcome = run_it("--part 1");
    EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
    EXPECT_THAT(report(), AllOf(HasSubstr("1 cuda_kernels_test                passed"),
                                HasSubstr("1 cuda_queue_test                  failed (3)"),
                                HasSubstr("2 cuda_queue_test.memcheck         not run"),
                                HasSubstr("3 ranks_2                          not run")));
  }
  EXPECT_EQ(runs_of("cuda_kernels_test"), "\n");
  EXPECT_EQ(runs_of("cuda_queue_test"), "\n\n");
}

TEST_F(GpuRun, OfOtherProgramsPassesCountForNothing) {
  EXPECT_EQ(run_it("--part 1").exit_code, 0);
  write_program(place_ / "bin/cuda_kernels_test", "exit 1");
  EXPECT_EQ(run_it("--part 2").exit_code, 0) << "the sanitizer is a stub";
  EXPECT_THAT(report(), HasSubstr("1 cuda_kernels_test                not run"));
  EXPECT_EQ(run_it("--part 1").exit_code, 1);
  EXPECT_THAT(report(), HasSubstr("1 cuda_kernels_test                failed (1)"));
}

TEST_F(GpuRun, PartsShareOneReport) {
  for (const char* part : {"3", "1", "2"}) {
    const Outcome outcome = run_it(std::string("--part ") + part);
    EXPECT_EQ(outcome.exit_code, 0) << part << outcome.output;
  }
  const std::string whole = report();
  EXPECT_THAT(whole, AllOf(HasSubstr("2 cuda_queue_test.racecheck        passed"),
                           HasSubstr("3 ranks_4                          passed"),
                           HasSubstr("3 updates                          passed"),
                           HasSubstr("3 feeds                            passed"),
                           HasSubstr("3 steps                            passed"),
                           HasSubstr("3 halves                           passed"),
                           Not(HasSubstr("not run"))));
  EXPECT_EQ(runs_of("launch"), "\n\n");
  EXPECT_EQ(run_it("").exit_code, 0);
  EXPECT_EQ(report(), whole);
  EXPECT_EQ(runs_of("launch"), "\n\n");
}

TEST_F(GpuRun, RanksWhoseModelDiffersFail) {
  write_program(place_ / "bin/local_trainer",
                std::string(kStub) + "\necho x > " + place_.string() + "/gpu_run/alone.model/w");
  EXPECT_EQ(run_it("--part 3").exit_code, 1);
  EXPECT_THAT(report(), AllOf(HasSubstr("3 ranks_2                          failed (1)"),
                              HasSubstr("3 servers                          passed")));
}

// It ignores that it is told to end. On a busy machine it may not have begun when its time is over:
// then it gets twice as long.
TEST_F(GpuRun, WhatDoesNotEndIsKilledInTimeAndComesLast) {
  const std::string released = (place_ / "released").string();
  const std::string pid = (place_ / "pid").string();
  write_program(place_ / "bin/cuda_kernels_test", "trap '' TERM\necho $$ > " + pid + ".new && mv " +
                                                      pid + ".new " + pid + "\nwhile [ ! -e " +
                                                      released + " ]; do sleep 0.2; done");
  Outcome first;
  for (int seconds = 8; seconds <= 128 && !fs::exists(pid); seconds *= 2) {
    fs::remove_all(place_ / "gpu_run");
    first = run_it("--part 1", "FLEET_GPU_SECONDS=" + std::to_string(seconds));
  }
  ASSERT_TRUE(fs::exists(pid)) << first.output;
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_NE(kill(std::stoi(text_of(pid)), 0), 0) << "it still holds the device";
  EXPECT_THAT(first.output, HasSubstr("no time left: cuda_queue_test"));
  EXPECT_THAT(report(), AllOf(HasSubstr("1 cuda_kernels_test                ran out of time"),
                              HasSubstr("1 cuda_queue_test                  not run")));
  std::ofstream(released) << "";
  const Outcome second = run_it("--part 1");
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_LT(second.output.find("Part 1: cuda_queue_test"),
            second.output.find("Part 1: cuda_kernels_test"));
}

TEST_F(GpuRun, SaysWhatTheDriverSays) {
  write_program(place_ / "nvidia-smi", "echo the driver does not answer; exit 9");
  const Outcome outcome = run_it("--part 1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("nvidia-smi fails: ran nvidia-smi\nthe driver does not"));
}

TEST(GpuRunWithoutStubs, NeedsADriver) {
  const Outcome outcome = run("gpu_run.sh build/cuda", "PATH=/usr/bin:/bin");
  if (outcome.output.find("index, name") != std::string::npos) GTEST_SKIP() << "there is a driver";
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("no NVIDIA driver"));
}

}  // namespace

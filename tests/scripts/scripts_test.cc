// What the scripts say without doing anything: help, the apt line, wrong arguments.
#include <cstdio>
#include <gmock/gmock.h>
#include <string>
#include <sys/wait.h>

#include "tests/testing/paths.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome run(const std::string& command) {
  FILE* pipe =
      popen((fleet::testing::source_path("scripts/") + command + " 2>&1 </dev/null").c_str(), "r");
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
                                           "lint.sh", "sanitize.sh", "bench.sh", "package.sh"),
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
       {"install_dependencies.sh", "quickstart.sh", "bench.sh", "package.sh"}) {
    const Outcome outcome = run(std::string(script) + " --fast");
    EXPECT_EQ(outcome.exit_code, 2) << script;
    EXPECT_THAT(outcome.output, HasSubstr("unknown argument '--fast'")) << script;
  }
}

}  // namespace

// One case per golden file. The net half builds the file's net through fluid::layers and compares
// it with what Paddle built, op for op and variable for variable; the transpiled half then
// transpiles those very programs and compares what comes out.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/golden/departures.h"
#include "tests/golden/golden_compare.h"
#include "tests/golden/golden_net.h"
#include "tests/golden/transpiled_half.h"
#include "tests/testing/paths.h"

namespace fleet::golden {
namespace {

std::filesystem::path golden_directory() {
  const char* given = std::getenv("FLEET_TRANSPILER_GOLDEN");
  if (given != nullptr && *given != '\0') return given;
  return fleet::testing::source_path("tests/golden/transpiler");
}

// Paths of all cases, relative to the directory, sorted; tables are left out.
std::vector<std::string> golden_files() {
  std::vector<std::string> files;
  const auto directory = golden_directory();
  if (!std::filesystem::is_directory(directory)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() != ".json") continue;
    if (entry.path().filename() == "numpy-shuffle.json") continue;
    files.push_back(std::filesystem::relative(entry.path(), directory).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(0, info.param.size() - std::string(".json").size());
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

void add_all(std::vector<std::string>& to, std::vector<std::string> more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The programs of the net itself, before anything is transpiled.
std::vector<std::string> check_net(const Json& golden, const BuiltNet& net) {
  const bool layers = golden.at("kind") == "layers";
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& key, const fluid::Program& got) {
    if (golden.contains(key)) add_all(differences, compare_program(golden.at(key), got, key));
  };
  compare("main_forward", net.main_forward);
  compare(layers ? "main" : "main_before", net.main);
  compare(layers ? "startup" : "startup_before", net.startup);
  if (golden.contains("params_grads")) {
    add_all(differences,
            compare_json(golden.at("params_grads"), Json(net.params_grads), "params_grads"));
  }
  return differences;
}

class TranspilerGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(TranspilerGolden, MakesTheSamePrograms) {
  std::ifstream file(golden_directory() / GetParam());
  ASSERT_TRUE(file) << "cannot read " << GetParam();
  const Json golden = Json::parse(file);
  std::vector<std::string> differences;
  try {
    const BuiltNet net = build_net(golden);
    Json own = golden;
    expect_own_net(own);
    differences = check_net(own, net);
    if (differences.empty()) differences = check_transpiled(golden, net.main, net.startup);
  } catch (const NotYetKnown& unknown) {
    FAIL() << "the runner does not know: " << unknown.what();
  }
  EXPECT_TRUE(differences.empty()) << differences.size() << " differences\n"
                                   << join(differences, "\n");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TranspilerGolden);
INSTANTIATE_TEST_SUITE_P(Files, TranspilerGolden, ::testing::ValuesIn(golden_files()), case_name);

}  // namespace
}  // namespace fleet::golden

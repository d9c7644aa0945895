// Every departure names cases, and what is made of each is kept whole: in the form that the
// documentation says, not only in Paddle's behind a switch.
#include "tests/golden/our_form.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/golden/departures.h"
#include "tests/testing/paths.h"

namespace fleet::golden {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// A case of a folder is kept under its own name.
std::string file_of(const std::string& name) {
  return str_cat(fs::path(name).filename().string(), ".txt");
}

// Cases of Paddle's, and some of them once more with asynchronous servers.
nlohmann::json golden(std::string name) {
  const bool asynchronous = name.starts_with("async-");
  if (asynchronous) name.replace(0, 5, "crash");
  auto read = nlohmann::json::parse(
      text_of(fleet::testing::source_path(str_cat("tests/golden/transpiler/", name, ".json"))));
  if (asynchronous) read["config"]["transpiler_config"]["sync_mode"] = false;
  return read;
}

std::set<std::string> named_cases() {
  std::set<std::string> names;
  for (const Departure& rule : departures()) {
    for (const std::string& name : split(std::string(rule.cases), ' ')) names.insert(name);
  }
  return names;
}

TEST(KeptForms, AreOfCasesThatEachDepartureConcerns) {
  for (const Departure& rule : departures()) {
    SCOPED_TRACE(rule.name);
    ASSERT_FALSE(rule.cases.empty());
    for (const std::string& name : split(std::string(rule.cases), ' ')) {
      EXPECT_TRUE(rule.applies(golden(name))) << name;
    }
  }
}

TEST(KeptForms, AreOfNoOtherCase) {
  std::set<std::string> files;
  for (const auto& entry :
       fs::directory_iterator(fleet::testing::source_path("tests/golden/our_form"))) {
    files.insert(entry.path().filename().string());
  }
  std::set<std::string> named;
  for (const std::string& name : named_cases()) named.insert(file_of(name));
  EXPECT_EQ(files, named);
}

class OurForm : public ::testing::TestWithParam<std::string> {};

// A whole text is long: the first line that differs is told, and where the text was written.
TEST_P(OurForm, IsWhatIsKept) {
  const std::string made = describe_our_form(golden(GetParam()));
  const fs::path written = fs::path(::testing::TempDir()) / file_of(GetParam());
  std::ofstream(written) << made;
  SCOPED_TRACE(str_cat("what was made is in ", written.string()));
  const auto expected = split(
      text_of(fleet::testing::source_path("tests/golden/our_form/" + file_of(GetParam()))), '\n');
  const auto got = split(made, '\n');
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    ASSERT_EQ(got[i], expected[i]) << "line " << i + 1;
  }
  EXPECT_EQ(got.size(), expected.size());
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, OurForm, ::testing::ValuesIn(named_cases()), case_name);

}  // namespace
}  // namespace fleet::golden

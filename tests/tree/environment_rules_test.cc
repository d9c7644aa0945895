// docs/environment.md, its table, and the variables that the sources name.
#include "tests/tree/environment_rules.h"

#include <fstream>
#include <gmock/gmock.h>
#include <map>
#include <sstream>

#include "base/environment_table.h"
#include "base/strings.h"
#include "tests/testing/paths.h"
#include "tools/documents.h"

namespace fleet::tree {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

constexpr const char* kTableFile = "base/environment_table.cc";

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(fleet::testing::source_path(path)).rdbuf();
  return std::move(text).str();
}

std::map<std::string, int> rows_by_name() {
  std::map<std::string, int> rows;
  for (const EnvironmentGroup& group : environment_table()) {
    for (const EnvironmentVariable& variable : group.variables) {
      ++rows[std::string(variable.name)];
    }
  }
  return rows;
}

// What users build and run: libraries, programs, examples.
std::vector<NamedVariable> variables_of_the_product() {
  std::vector<NamedVariable> named;
  for (const SourceFile& file : read_tree(fleet::testing::source_path(""))) {
    if (!is_cpp(file.path) || file.path.starts_with("tests/") || file.path == kTableFile) continue;
    for (NamedVariable& variable : find_variables(file)) named.push_back(std::move(variable));
  }
  return named;
}

std::vector<std::string> names_of(const std::string& source) {
  std::vector<std::string> names;
  for (const auto& found : find_variables({"base/a.cc", source})) names.push_back(found.name);
  return names;
}

TEST(EnvironmentRules, FindNamesInLiteralsAndWhatIsAskedFor) {
  EXPECT_THAT(names_of("f(\"FLEET_A_MS\");  // \"FLEET_B\"\n"), ElementsAre("FLEET_A_MS"));
  EXPECT_THAT(names_of("f(\"set FLAGS_a_b or FLEET_C\");"), ElementsAre("FLAGS_a_b", "FLEET_C"));
  EXPECT_THAT(names_of("getenv(\"TMPDIR\"); env.get(\n  \"CPU_NUM\");"),
              ElementsAre("TMPDIR", "CPU_NUM"));
  EXPECT_THAT(names_of("int FLEET_A; name.starts_with(\"FLEET_B\"); f(\"FLAGS_\", x);"), IsEmpty());
  EXPECT_THAT(find_variables({"base/a.cc", "\n\"FLEET_A\""}),
              ElementsAre(Field(&NamedVariable::place, "base/a.cc:2")));
  EXPECT_THAT(
      find_script_variables({"scripts/a.sh", "${FLEET_A:-3} $FLEET_B FLEET_C=1"}),
      ElementsAre(Field(&NamedVariable::name, "FLEET_A"), Field(&NamedVariable::name, "FLEET_B")));
}

TEST(EnvironmentTable, NamesEveryVariableOnce) {
  for (const auto& [name, rows] : rows_by_name()) EXPECT_EQ(rows, 1) << name;
}

TEST(EnvironmentTable, HasEveryVariableThatTheSourcesName) {
  const auto rows = rows_by_name();
  for (const NamedVariable& variable : variables_of_the_product()) {
    EXPECT_TRUE(rows.contains(variable.name))
        << variable.place << ": " << variable.name << " has no row in " << kTableFile;
  }
}

TEST(EnvironmentTable, HasNoVariableThatNoSourceNames) {
  std::string literals;
  for (const SourceFile& file : read_tree(fleet::testing::source_path(""))) {
    if (is_cpp(file.path) && !file.path.starts_with("tests/") && file.path != kTableFile) {
      literals += file.text;
    }
  }
  for (const auto& [name, rows] : rows_by_name()) {
    EXPECT_NE(literals.find("\"" + name), std::string::npos) << name;
  }
}

TEST(EnvironmentTable, IsTheListOfVariables) {
  EXPECT_EQ(read("docs/environment.md"), tools::environment_document())
      << "run build/release/bin/fleet_environment_document > docs/environment.md";
}

// Who works on the project finds the variables of its tests and scripts in one place too.
TEST(Contributing, NamesTheVariablesOfTestsAndScripts) {
  const auto rows = rows_by_name();
  const std::string page = read("CONTRIBUTING.md");
  for (const SourceFile& file : read_tree(fleet::testing::source_path(""))) {
    std::vector<NamedVariable> named;
    if (file.path.starts_with("scripts/")) named = find_script_variables(file);
    if (is_cpp(file.path) && file.path.starts_with("tests/")) {
      named = find_variables(file);
      std::erase_if(named, [&](const NamedVariable& variable) {
        return file.text.find("getenv(\"" + variable.name + "\")") == std::string::npos;
      });
    }
    for (const NamedVariable& variable : named) {
      if (!variable.name.starts_with("FLEET_") || rows.contains(variable.name)) continue;
      EXPECT_NE(page.find("`" + variable.name + "`"), std::string::npos)
          << variable.place << ": " << variable.name << " is not in CONTRIBUTING.md";
    }
  }
}

}  // namespace
}  // namespace fleet::tree

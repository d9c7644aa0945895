// The project's own tree, held against its rules.
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <regex>
#include <sstream>

#include "base/strings.h"
#include "tests/testing/paths.h"
#include "tests/tree/source_text.h"
#include "tests/tree/tree_rules.h"
#include "tools/documents.h"

namespace fleet::tree {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = fleet::testing::source_path("");

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(kRoot / path).rdbuf();
  return std::move(text).str();
}

class Tree : public ::testing::Test {
 protected:
  Tree() : files_(read_tree(kRoot)), layers_(read("cmake/FleetLayers.cmake"), files_) {}

  void expect_each_passes(const std::function<Breaches(const SourceFile&)>& rule) const {
    for (const SourceFile& file : files_) {
      for (const std::string& breach : rule(file)) ADD_FAILURE() << breach;
    }
  }

  const std::vector<SourceFile> files_;
  const LayerMap layers_;
};

TEST_F(Tree, IsNotEmpty) {
  EXPECT_GT(files_.size(), 50u);
  EXPECT_EQ(layers_.library_of("base/error.h"), "base");
}

TEST_F(Tree, FunctionsFitOneScreen) {
  expect_each_passes(check_function_lengths);
}
TEST_F(Tree, SourcesAreOfReadableLength) {
  expect_each_passes(check_source_length);
}
TEST_F(Tree, HoldsNoMarkersAndNoHomePaths) {
  expect_each_passes(check_words);
}

TEST_F(Tree, SpeaksTheFieldsWords) {
  expect_each_passes(check_dialect);
}

TEST_F(Tree, IncludesObeyTheLayerTable) {
  expect_each_passes([&](const SourceFile& file) { return check_layers(file, layers_); });
}

TEST_F(Tree, EverySourceIsBuilt) {
  expect_each_passes([&](const SourceFile& file) { return check_listed(file, layers_); });
}

TEST_F(Tree, PublicHeadersAreFreeOfForeignOnes) {
  expect_each_passes([&](const SourceFile& file) { return check_public_header(file, layers_); });
}

TEST_F(Tree, HeadersHaveTheirPragmaAndComeFirst) {
  std::set<std::string> headers;
  for (const SourceFile& file : files_) headers.insert(file.path);
  expect_each_passes([&](const SourceFile& file) { return check_header_habits(file, headers); });
}

TEST_F(Tree, FoldersAreSmall) {
  EXPECT_THAT(check_folders(files_), ::testing::IsEmpty());
}

TEST_F(Tree, TestsLieWhereWhatTheyTestLies) {
  EXPECT_THAT(check_test_places(files_), ::testing::IsEmpty());
}

TEST_F(Tree, TheArchitectureNamesEveryTopLevelFolder) {
  EXPECT_THAT(check_top_level(files_, read("docs/architecture.md")), ::testing::IsEmpty());
}

TEST_F(Tree, LicencesAreInPlace) {
  EXPECT_THAT(read("LICENSE"), ::testing::HasSubstr("Apache License"));
  EXPECT_THAT(read("examples/data/digits/LICENSE"), ::testing::HasSubstr("CC BY 4.0"));
  EXPECT_THAT(read("README.md"), ::testing::HasSubstr("Apache-2.0"));
}

TEST_F(Tree, TheListOfErrorsIsTheTables) {
  EXPECT_EQ(read("docs/errors.md"), tools::error_document())
      << "run build/release/bin/fleet_error_document > docs/errors.md";
}

StatementDiff difference(const std::string& local, const std::string& distributed) {
  const auto before = statements(read(local));
  const auto after = statements(read(distributed));
  EXPECT_FALSE(before.empty()) << local;
  EXPECT_FALSE(after.empty()) << distributed;
  return diff_statements(before, after);
}

TEST(LocalAndDistributed, DifferByTenLinesAtMost) {
  const std::string quick_start = "examples/quick_start/";
  const std::string first_program = "examples/first_program/";
  for (const StatementDiff& diff :
       {difference(quick_start + "local_trainer.cc", quick_start + "distributed_train.cc"),
        difference(first_program + "local.cc", first_program + "distributed.cc")}) {
    EXPECT_GT(diff.changed_lines, 0);
    EXPECT_LE(diff.changed_lines, 10);
  }
}

// The first ```diff block of the README holds every statement that differs, one a line.
TEST(LocalAndDistributed, TheReadmeShowsTheSourcesDifference) {
  static const std::regex block("```diff\n([^`]*)```");
  const auto diff =
      difference("examples/first_program/local.cc", "examples/first_program/distributed.cc");
  const std::string readme = read("README.md");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(readme, match, block)) << "README.md has no ```diff block";
  std::vector<std::string> removed;
  std::vector<std::string> added;
  for (const std::string& line : split(match[1].str(), '\n')) {
    const auto found = line.empty() ? std::vector<std::string>() : statements(line.substr(1));
    auto& side = line.starts_with('-') ? removed : added;
    if (line.starts_with('-') || line.starts_with('+')) {
      side.insert(side.end(), found.begin(), found.end());
    }
  }
  EXPECT_EQ(removed, diff.removed);
  EXPECT_EQ(added, diff.added);
}

}  // namespace
}  // namespace fleet::tree

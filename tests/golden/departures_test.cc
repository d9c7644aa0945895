// The table of departures is complete and its pieces work.
#include "tests/golden/departures.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "base/strings.h"
#include "tests/testing/paths.h"

namespace fleet::golden {
namespace {

TEST(NumpyShuffle, DealsAsTheTableSays) {
  std::ifstream file(fleet::testing::source_path("tests/golden/transpiler/numpy-shuffle.json"));
  const auto table = nlohmann::json::parse(file).at("permutations");
  ASSERT_FALSE(table.empty());
  for (const auto& [seed, by_count] : table.items()) {
    for (const auto& [count, order] : by_count.items()) {
      EXPECT_EQ(numpy_shuffle(static_cast<uint32_t>(std::stoul(seed)), std::stoul(count)),
                order.get<std::vector<size_t>>())
          << "seed " << seed << ", " << count << " items";
    }
  }
}

// The rows of the table under "| Rule | The release | ...".
std::set<std::string> documented_rules() {
  std::ifstream file(fleet::testing::source_path("docs/transpiler.md"));
  std::set<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (inside && !line.starts_with("|")) break;
    if (inside && !line.starts_with("|---")) rows.insert(line);
    inside = inside || line.starts_with("| Rule | The release |");
  }
  return rows;
}

TEST(Departures, AreTheTableOfTheDocumentation) {
  std::set<std::string> rules;
  for (const Departure& rule : departures()) {
    rules.insert(str_cat("| ", rule.name, " | ", rule.paddle, " | ", rule.ours, " | ", rule.reason,
                         " | ", rule.cases, " |"));
  }
  EXPECT_EQ(documented_rules(), rules);
}

// The rule for lookups, and what a file that it concerns then expects.
class LookupRule : public ::testing::Test {
 protected:
  static const Departure& rule() {
    return *std::find_if(departures().begin(), departures().end(),
                         [](const Departure& each) { return each.name == "lookups"; });
  }
  static nlohmann::json load(const std::string& name) {
    std::ifstream file(
        fleet::testing::source_path(str_cat("tests/golden/transpiler/", name, ".json")));
    return nlohmann::json::parse(file);
  }
  static nlohmann::json errors_left(nlohmann::json golden) {
    EXPECT_TRUE(rule().applies(golden));
    rule().expect(golden);
    return golden.value("errors", nlohmann::json::object());
  }
};

TEST_F(LookupRule, DropsTheErrorOfIdsOfRank1) {
  EXPECT_TRUE(errors_left(load("crash-embedding-v2-rank1")).empty());
}

TEST_F(LookupRule, KeepsOtherErrors) {
  auto golden = load("crash-embedding-v2-rank1");
  golden["errors"]["trainer"]["message"] = "Another thing is wrong.";
  const auto left = errors_left(golden);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left["trainer"], golden["errors"]["trainer"]);
}

TEST_F(LookupRule, KeepsEveryErrorWhereIdsAreAColumn) {
  auto golden = load("embedding-v2-sync");
  golden["errors"] = load("crash-embedding-v2-rank1")["errors"];
  EXPECT_EQ(errors_left(golden), golden["errors"]);
}

TEST_F(LookupRule, ConcernsLookupsOfOnePaddingOnlyWithIdsOfRank1) {
  auto golden = load("embedding-v2-sync");
  for (auto& op : golden["main_before"]["blocks"][0]["ops"]) {
    if (op["type"] == "lookup_table_v2") op["attrs"]["padding_idx"] = -1;
  }
  EXPECT_FALSE(rule().applies(golden));
  golden = load("crash-embedding-v2-rank1");
  for (auto& var : golden["main_before"]["blocks"][0]["vars"]) {
    if (var["name"] == "w1" || var["name"] == "w2") var["shape"] = {-1, 1};
  }
  for (auto& op : golden["main_before"]["blocks"][0]["ops"]) {
    if (op["type"] == "lookup_table_v2") op["attrs"]["padding_idx"] = -1;
  }
  EXPECT_FALSE(rule().applies(golden));
}

}  // namespace
}  // namespace fleet::golden

// The table of departures is complete and its pieces work.
#include "tests/golden/departures.h"

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
    rules.insert(
        str_cat("| ", rule.name, " | ", rule.original, " | ", rule.ours, " | ", rule.reason, " |"));
  }
  EXPECT_EQ(documented_rules(), rules);
}

}  // namespace
}  // namespace fleet::golden

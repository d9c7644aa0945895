// The table of departures is complete and its pieces work.
#include "tests/golden/departures.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

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

TEST(Departures, AreShownInTheDocumentation) {
  std::ifstream file(fleet::testing::source_path("docs/transpiler.md"));
  std::stringstream text;
  text << file.rdbuf();
  for (const Departure& departure : departures()) {
    for (const std::string_view cell : {departure.original, departure.ours, departure.reason}) {
      EXPECT_NE(text.str().find(cell), std::string::npos) << departure.name << ": " << cell;
    }
  }
}

}  // namespace
}  // namespace fleet::golden

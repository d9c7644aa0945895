#include "tools/bench_rows.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace fleet::tools {
namespace {

using ::testing::HasSubstr;

nlohmann::json row(double ratio, nlohmann::json target) {
  return {{"name", "mlp_b32_1t"}, {"value", 13000.0}, {"unit", "steps/s"}, {"peer", "LibTorch"},
          {"peer_value", 6500.},  {"ratio", ratio},   {"target", target},  {"rounds", 5}};
}

TEST(BenchRows, SummaryHoldsTheRowsAsTheyWereWritten) {
  nlohmann::json rows = {row(2.0, 2.0), row(0.5, nullptr)};
  for (auto& each : rows) {
    each.update({{"note", "avx512"}, {"valid", true}, {"placement_us", {0.11, 0.45}}});
  }
  const auto parsed = parse_bench_rows(rows.dump(), "rows.json");
  EXPECT_EQ(nlohmann::json::parse(bench_summary_json(parsed)), rows);
}

TEST(BenchRows, ARatioAtItsTargetMeetsIt) {
  const nlohmann::json rows = {row(2.0, 2.0), row(1.99, 2.0), row(0.1, nullptr)};
  const auto parsed = parse_bench_rows(rows.dump(), "rows.json");
  EXPECT_EQ(parsed[0].met(), true);
  EXPECT_EQ(parsed[1].met(), false);
  EXPECT_EQ(parsed[2].met(), std::nullopt);
}

TEST(BenchRows, TheTableSaysWhatWasMissed) {
  const nlohmann::json rows = {row(1.5, 2.0)};
  std::ostringstream out;
  print_bench_table(out, parse_bench_rows(rows.dump(), "rows.json"));
  EXPECT_THAT(out.str(), HasSubstr("1.500"));
  EXPECT_THAT(out.str(), HasSubstr("missed"));
}

TEST(BenchRows, ARowThatIsNotValidNeitherMeetsNorMisses) {
  nlohmann::json invalid = row(3.0, 2.0);
  invalid["valid"] = false;
  const auto parsed = parse_bench_rows(nlohmann::json::array({invalid}).dump(), "rows.json");
  EXPECT_EQ(parsed[0].met(), std::nullopt);
  std::ostringstream out;
  print_bench_table(out, parsed);
  EXPECT_THAT(out.str(), HasSubstr("invalid"));
}

TEST(BenchRows, ARowWithoutAFieldIsRefusedWithFileAndKey) {
  nlohmann::json broken = row(1, 1);
  broken.erase("target");
  try {
    parse_bench_rows(nlohmann::json::array({broken}).dump(), "rows.json");
    FAIL() << "accepted";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rows.json"));
    EXPECT_THAT(error.what(), HasSubstr("\"target\""));
  }
}

}  // namespace
}  // namespace fleet::tools

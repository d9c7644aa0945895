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

std::vector<BenchRow> parsed(const nlohmann::json& rows) {
  return parse_bench_rows(rows.dump(), "rows.json");
}

nlohmann::json changed(nlohmann::json row, const nlohmann::json& by) {
  row.update(by);
  return row;
}

TEST(BenchRows, AFileHoldsTheRowsAsTheyWereWritten) {
  const nlohmann::json rows = {changed(row(2.0, 2.0), {{"note", "avx512"},
                                                       {"better", "lower"},
                                                       {"peer_kind", "limit"},
                                                       {"ratio_min", 1.5},
                                                       {"ratio_max", 2.5},
                                                       {"bound", 14000.},
                                                       {"verdict", "invalid"},
                                                       {"valid", false},
                                                       {"invalid", {"a reason"}},
                                                       {"error", ""},
                                                       {"skipped", ""},
                                                       {"others", {{"raw stream", 7.5}}},
                                                       {"seconds", 12.5},
                                                       {"placement_us", {0.11, 0.45}},
                                                       {"machine", "a processor"},
                                                       {"date", "2026-01-02"}})};
  EXPECT_EQ(nlohmann::json::parse(bench_rows_json(parsed(rows))), rows);
}

TEST(BenchRows, ARatioAtItsTargetMeetsIt) {
  const auto rows = parsed({row(2.0, 2.0), row(1.99, 2.0), row(0.1, nullptr)});
  EXPECT_EQ(rows[0].verdict(), BenchVerdict::kMet);
  EXPECT_EQ(rows[1].verdict(), BenchVerdict::kMissed);
  EXPECT_EQ(rows[2].verdict(), BenchVerdict::kReported);
}

TEST(BenchRows, AValueBeyondItsBoundMissesThoughItMeetsItsTarget) {
  const auto rows = parsed({changed(row(2.0, 1.0), {{"bound", 14000.}}),
                            changed(row(2.0, 1.0), {{"bound", 12000.}}),
                            changed(row(2.0, 1.0), {{"bound", 14000.}, {"better", "lower"}}),
                            changed(row(2.0, 1.0), {{"bound", 12000.}, {"better", "lower"}})});
  EXPECT_EQ(rows[0].verdict(), BenchVerdict::kMissed);
  EXPECT_EQ(rows[1].verdict(), BenchVerdict::kMet);
  EXPECT_EQ(rows[2].verdict(), BenchVerdict::kMet);
  EXPECT_EQ(rows[3].verdict(), BenchVerdict::kMissed);
}

TEST(BenchRows, TheTableSaysWhatWasMissedAndWhyARowIsInvalid) {
  std::ostringstream out;
  print_bench_table(
      out, parsed({row(1.5, 2.0), changed(row(3.0, 2.0), {{"invalid", {"too slow a peer"}}})}));
  EXPECT_THAT(out.str(), HasSubstr("1.500"));
  EXPECT_THAT(out.str(), HasSubstr("missed"));
  EXPECT_THAT(out.str(), HasSubstr("too slow a peer"));
}

TEST(BenchRows, TheLastLineNamesWhatDidNotMeet) {
  const auto named = [](const char* name, const nlohmann::json& by, double ratio = 3.0) {
    nlohmann::json made = changed(row(ratio, 2.0), by);
    made["name"] = name;
    return made;
  };
  const nlohmann::json none = nlohmann::json::object();
  const auto rows = parsed({named("a", none), named("b", none, 1.0), named("c", none, 1.0),
                            named("d", {{"invalid", {"x"}}}), named("e", {{"error", "x"}}),
                            named("f", {{"skipped", "x"}})});
  EXPECT_EQ(bench_last_line(rows),
            "6 rows: 1 met, 2 missed (b, c), 1 invalid (d), 1 failed (e), 1 skipped (f)");
  EXPECT_TRUE(has_bench_problem(rows));
  EXPECT_FALSE(has_bench_problem(parsed({named("a", none), named("f", {{"skipped", "x"}})})));
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

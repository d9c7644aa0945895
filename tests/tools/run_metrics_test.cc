#include "tools/run_metrics.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"

namespace fleet::tools {
namespace {

using ::testing::HasSubstr;

nlohmann::json valid() {
  return {{"mode", "parameter_server"},
          {"processes", 4},
          {"cores", 2},
          {"steps", 3},
          {"steps_per_s", 1234.5},
          {"first_loss", 2.5},
          {"last_loss", 0.5},
          {"accuracy", 0.975},
          {"seconds_to_first_step", 0.25},
          {"loss", {{0, 2.5}, {1, 1.0}, {2, 0.5}}}};
}

RunMetrics run_of(std::string mode, std::vector<LossPoint> loss) {
  RunMetrics run;
  run.mode = std::move(mode);
  run.loss = std::move(loss);
  return run;
}

std::string error_of(const nlohmann::json& object) {
  try {
    parse_metrics(object.dump(), "run.json");
  } catch (const ResourceError& error) {
    return error.what();
  }
  return "";
}

TEST(RunMetrics, ReadsEveryField) {
  const RunMetrics run = parse_metrics(valid().dump(), "run.json");
  EXPECT_EQ(run.mode, "parameter_server");
  EXPECT_EQ(run.processes, 4);
  EXPECT_EQ(run.cores, 2);
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.steps_per_s, 1234.5);
  EXPECT_EQ(run.accuracy, 0.975);
  ASSERT_EQ(run.loss.size(), 3u);
  EXPECT_EQ(run.loss[2].step, 2);
  EXPECT_EQ(run.loss[2].loss, 0.5);
}

TEST(RunMetrics, NamesFileAndKeyThatIsMissing) {
  nlohmann::json object = valid();
  object.erase("first_loss");
  EXPECT_THAT(error_of(object), HasSubstr("run.json"));
  EXPECT_THAT(error_of(object), HasSubstr("\"first_loss\""));
}

TEST(RunMetrics, RefusesALossThatIsNotANumber) {
  nlohmann::json object = valid();
  object["loss"][1][1] = nullptr;
  EXPECT_THAT(error_of(object), HasSubstr("[step, loss]"));
}

TEST(RunMetrics, RefusesStepsThatGoBack) {
  nlohmann::json object = valid();
  object["loss"][2][0] = 1;
  EXPECT_THAT(error_of(object), HasSubstr("growing steps"));
}

TEST(RunMetrics, RefusesNegativeAndFractionalCounts) {
  nlohmann::json object = valid();
  object["processes"] = -1;
  EXPECT_THAT(error_of(object), HasSubstr("\"processes\""));
  object["processes"] = 1.5;
  EXPECT_THAT(error_of(object), HasSubstr("\"processes\""));
}

TEST(RunMetrics, RefusesTextThatIsNotJson) {
  EXPECT_THROW(parse_metrics("{\"mode\":", "run.json"), ResourceError);
  EXPECT_THROW(parse_metrics("[]", "run.json"), ResourceError);
}

TEST(RunMetrics, SummaryHoldsEachRunWithoutItsCurve) {
  const std::vector<RunMetrics> runs = {parse_metrics(valid().dump(), "run.json")};
  const auto summary = nlohmann::json::parse(summary_json(runs));
  ASSERT_EQ(summary.size(), 1u);
  nlohmann::json expected = valid();
  expected.erase("loss");
  EXPECT_EQ(summary[0], expected);
}

// A run that is judged otherwise, on a growing table.
nlohmann::json ranking() {
  nlohmann::json object = valid();
  object.erase("accuracy");
  object["auc"] = 0.85;
  object["tables"]["ids"] = {{"rows", 7},     {"bytes", 3e6}, {"hits", 90},  {"misses", 10},
                             {"admitted", 8}, {"refused", 2}, {"evicted", 1}};
  return object;
}

TEST(RunMetrics, MayHaveOtherScoresAndGrowingTables) {
  const std::vector<RunMetrics> runs = {parse_metrics(valid().dump(), "run.json"),
                                        parse_metrics(ranking().dump(), "run.json")};
  EXPECT_FALSE(runs[1].accuracy.has_value());
  EXPECT_EQ(runs[1].auc, 0.85);
  ASSERT_EQ(runs[1].tables.size(), 1u);
  std::ostringstream out;
  print_runs_table(out, runs);
  print_growing_tables(out, runs);
  for (const char* text : {"test accuracy", "97.50 %", "test AUC", "0.850000", "growing table",
                           "ids", "3.0", "90", "evicted"}) {
    EXPECT_THAT(out.str(), HasSubstr(text));
  }
  const auto summary = nlohmann::json::parse(summary_json(runs));
  nlohmann::json expected = ranking();
  expected.erase("loss");
  EXPECT_EQ(summary[1], expected);
  std::ostringstream none;
  print_growing_tables(none, {runs.data(), 1});
  EXPECT_EQ(none.str(), "");
}

TEST(RunMetrics, RefusesATableWithoutItsNumbers) {
  nlohmann::json object = ranking();
  object["tables"]["ids"].erase("hits");
  EXPECT_THAT(error_of(object), HasSubstr("\"hits\""));
  object["tables"] = nlohmann::json::array();
  EXPECT_THAT(error_of(object), HasSubstr("\"tables\""));
}

TEST(LargestDifference, ComparesTheSameStepsOfEveryPair) {
  const std::vector<RunMetrics> runs = {run_of("a", {{0, 1.0}, {1, 0.5}}),
                                        run_of("b", {{0, 1.0}, {1, 0.75}}),
                                        run_of("c", {{1, 0.25}, {2, 9.0}})};
  const auto difference = largest_difference(runs);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->value, 0.5);
  EXPECT_EQ(difference->step, 1);
  EXPECT_EQ(difference->first_mode, "b");
  EXPECT_EQ(difference->second_mode, "c");
}

TEST(LargestDifference, IsNothingWithoutACommonStep) {
  const std::vector<RunMetrics> runs = {run_of("a", {{0, 1.0}}), run_of("b", {{1, 1.0}})};
  EXPECT_FALSE(largest_difference(runs).has_value());
}

TEST(Thin, JoinsNeighboursToTheirMeans) {
  const std::vector<LossPoint> points = {{0, 4}, {1, 2}, {2, 1}, {3, 3}, {4, 7}};
  const ThinnedCurve curve = thin(points, 3);
  EXPECT_EQ(curve.steps_per_point, 2u);
  ASSERT_EQ(curve.points.size(), 3u);
  EXPECT_EQ(curve.points[0].loss, 3);
  EXPECT_EQ(curve.points[1].step, 2.5);
  EXPECT_EQ(curve.points[2].loss, 7);
}

TEST(RunsTable, HasOneRowARunAndAlignedColumns) {
  const std::vector<RunMetrics> runs = {parse_metrics(valid().dump(), "run.json")};
  std::ostringstream out;
  print_runs_table(out, runs);
  EXPECT_THAT(out.str(), HasSubstr("mode"));
  EXPECT_THAT(out.str(), HasSubstr("parameter server           4       2"));
  EXPECT_THAT(out.str(), HasSubstr("97.50 %"));
}

}  // namespace
}  // namespace fleet::tools

#include "tools/bench_document.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace fleet::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<BenchRow> rows() {
  BenchRow met = {.name = "row_met",
                  .value = 20,
                  .unit = "steps/s",
                  .peer = "a|b",
                  .peer_value = 10,
                  .ratio = 2,
                  .target = 1.5,
                  .ratio_min = 1.8,
                  .ratio_max = 2.2,
                  .machine = "a processor",
                  .date = "2026-01-02"};
  BenchRow invalid = met;
  invalid.name = "row_invalid";
  invalid.invalid = {"the limit is beaten"};
  return {met, invalid};
}

TEST(BenchDocument, TheTableSaysMachineDaySpreadAndReasons) {
  EXPECT_THAT(bench_markdown(rows()),
              AllOf(HasSubstr("Measured on a processor, 2026-01-02."),
                    HasSubstr("| `row_met` | 20.0 steps/s | a\\|b | 10.0 | 2.000 (1.800 to 2.200) "
                              "| 1.500 | met |"),
                    HasSubstr("invalid: the limit is beaten"),
                    HasSubstr("2 rows: 1 met, 1 invalid (row_invalid).")));
}

TEST(BenchDocument, TheBriefTableHasOtherSystemsAndWhatProvesSomething) {
  std::vector<BenchRow> all = rows();
  BenchRow limit = all.front();
  limit.name = "row_limit";
  limit.peer_kind = BenchPeer::kLimit;
  all.push_back(limit);
  EXPECT_THAT(
      bench_brief_markdown(all),
      AllOf(HasSubstr("Measured on a processor, 2026-01-02."),
            HasSubstr("| `row_met` | 20.0 steps/s | a\\|b | 10.0 | 2.000 (1.800 to 2.200) |"),
            Not(HasSubstr("row_invalid")), Not(HasSubstr("row_limit"))));
}

TEST(BenchDocument, TheChartShowsOnlyWhatProvesSomething) {
  EXPECT_THAT(bench_chart(rows()),
              AllOf(HasSubstr("<svg"), HasSubstr("row_met"), Not(HasSubstr("row_invalid"))));
}

TEST(BenchDocument, AMessageOfSeveralLinesStaysInItsCell) {
  BenchRow failed = rows()[0];
  failed.error = "a program failed\n  where: it";
  EXPECT_THAT(bench_markdown(std::vector{failed}),
              HasSubstr("failed: a program failed   where: it |"));
}

// From 1 on: 64 takes the whole width, and 2 a sixth of it.
TEST(BenchDocument, ALargeRatioLeavesTheOthersReadable) {
  std::vector<BenchRow> shown = {rows()[0], rows()[0]};
  shown[1].ratio = 64;
  EXPECT_THAT(bench_chart(shown), AllOf(HasSubstr("h440v"), HasSubstr("h73v")));
  shown[1].ratio = 0.25;
  EXPECT_THAT(bench_chart(shown), AllOf(HasSubstr("1/4"), HasSubstr("h293v"), HasSubstr("h147v")));
}

TEST(BenchDocument, OnlyTheTextBetweenTheMarkersChanges) {
  const std::string page = "A\n<!-- benchmarks:begin -->\nold\n<!-- benchmarks:end -->\nB\n";
  const std::string changed = with_benchmarks(page, "new\n", "page.md");
  EXPECT_EQ(changed, "A\n<!-- benchmarks:begin -->\nnew\n<!-- benchmarks:end -->\nB\n");
  EXPECT_EQ(with_benchmarks(changed, "old\n", "page.md"), page);
  EXPECT_THROW(with_benchmarks("A\n", "new\n", "page.md"), Error);
}

}  // namespace
}  // namespace fleet::tools

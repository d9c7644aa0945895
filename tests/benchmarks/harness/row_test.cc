#include "benchmarks/harness/row.h"

#include <fstream>
#include <gmock/gmock.h>

#include "base/error.h"

namespace fleet::benchmarks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tools::BenchVerdict;

const Machine kMachine = {.processor = "a processor", .instruction_set = "avx512"};

Stored stored(const std::string& json) {
  const std::string path = ::testing::TempDir() + "/stored_" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ofstream(path) << json;
  return Stored::read(path);
}

tools::BenchRow judged(const Row& row, const Stored& known = {}) {
  return judge("a_row", row, known, kMachine);
}

Row rate(double ours, double peer, BenchPeer kind = BenchPeer::kSystem) {
  return {.value = ours, .unit = "steps/s", .peer = "peer", .peer_value = peer, .kind = kind};
}

Row milliseconds(double ours, double limit) {
  Row row = rate(ours, limit, BenchPeer::kFixed);
  row.unit = "ms";
  row.better = Better::kLower;
  row.target = 1.0;
  return row;
}

TEST(Judge, TheRatioIsTheMedianOfTheRoundsAndItsEndsAreSaid) {
  Row row = rate(0, 0);
  row.take({.ours = {8, 3, 9}, .peer = {10, 4, 10}});
  const auto result = judged(row);
  EXPECT_EQ(result.ratio, 0.8);
  EXPECT_EQ(result.ratio_min, 0.75);
  EXPECT_EQ(result.ratio_max, 0.9);
  EXPECT_EQ(result.rounds, 3);
  EXPECT_EQ(result.machine, "a processor");
}

TEST(Judge, ALimitThatIsBeatenIsNone) {
  EXPECT_THAT(judged(rate(1.05, 1, BenchPeer::kLimit)).invalid, IsEmpty());
  EXPECT_THAT(judged(rate(1.06, 1, BenchPeer::kLimit)).invalid,
              ElementsAre(HasSubstr("beaten by 6 %")));
  EXPECT_THAT(judged(rate(3, 1, BenchPeer::kSystem)).invalid, IsEmpty());
}

TEST(Judge, APeerFarBelowWhatIsKnownOfItIsInvalid) {
  const Stored known =
      stored(R"({"peers": {"a processor": {"a_row": {"peer": 1000}}}, "best": {}})");
  EXPECT_THAT(judged(rate(1, 850), known).invalid, IsEmpty());
  EXPECT_THAT(judged(rate(1, 840), known).invalid, ElementsAre(HasSubstr("84 % of the 1000")));
  // Of times, less is better.
  Row slow = rate(1, 1300);
  slow.better = Better::kLower;
  EXPECT_THAT(judged(slow, known).invalid, ElementsAre(HasSubstr("77 %")));
}

// A processor without figures of its own may be slower than the one that has them.
TEST(Judge, WhatAnotherProcessorReachesIsANote) {
  const Stored known = stored(R"({"peers": {"avx512": {"a_row": {"peer": 1000}}}, "best": {}})");
  const auto slower = judged(rate(1, 840), known);
  EXPECT_THAT(slower.invalid, IsEmpty());
  EXPECT_THAT(slower.note, HasSubstr("84 % of the 1000 steps/s known of it on another avx512"));
  EXPECT_EQ(judged(rate(1, 850), known).note, "");
}

TEST(Judge, WhatIsKnownHoldsForItsPeerAndItsInstructionSet) {
  const Stored known = stored(
      R"({"peers": {"avx2": {"a_row": {"peer": 1000}}, "avx512": {"a_row": {"other": 1000}}},
          "best": {}})");
  EXPECT_EQ(judged(rate(1, 1), known).note, "");
}

// What is known of the very processor says more than what is known of its kind.
TEST(Judge, AProcessorsOwnFigureGoesFirst) {
  const Stored known = stored(
      R"({"peers": {"avx512": {"a_row": {"peer": 1000}}, "a processor": {"a_row": {"peer": 500}}},
          "best": {}})");
  EXPECT_THAT(judged(rate(1, 430), known).invalid, IsEmpty());
  EXPECT_THAT(judged(rate(1, 420), known).invalid, ElementsAre(HasSubstr("of the 500")));
}

TEST(Judge, FurtherFiguresAreHeldAgainstWhatIsKnownToo) {
  const Stored known = stored(R"({"peers": {"a processor": {"a_row": {"raw": 8}}}, "best": {}})");
  Row row = rate(1, 1);
  row.others = {{"raw", 4}};
  EXPECT_THAT(judged(row, known).invalid, ElementsAre(HasSubstr("raw reaches 50 %")));
}

TEST(Judge, AFixedLimitHasATightBoundToo) {
  const Stored known = stored(R"({"peers": {}, "best": {"a processor": {"a_row": 10}}})");
  const auto fine = judged(milliseconds(15, 50), known);
  EXPECT_EQ(fine.bound, 15);
  EXPECT_EQ(fine.verdict(), BenchVerdict::kMet);
  EXPECT_EQ(judged(milliseconds(15.1, 50), known).verdict(), BenchVerdict::kMissed);
  const auto unknown = judged(milliseconds(15.1, 50));
  EXPECT_EQ(unknown.verdict(), BenchVerdict::kMet);
  EXPECT_THAT(unknown.note, HasSubstr("no best stored"));
}

TEST(HandwrittenStep, MayTakeATenthMoreThanOurs) {
  Row row = rate(1, 1);
  require_fast_handwritten_step(row, 11, 10);
  EXPECT_THAT(row.invalid, IsEmpty());
  require_fast_handwritten_step(row, 12, 10);
  EXPECT_THAT(row.invalid, ElementsAre(HasSubstr("takes 1.200 of ours")));
}

TEST(Stored, ReadsWhatItWrote) {
  Stored written = stored(R"({"peers": {"avx2": {"r": {"p": 2}}}, "best": {}})");
  written.set_best("cpu", "r", 3);
  const std::string path = ::testing::TempDir() + "/stored_again.json";
  written.write(path);
  const Stored read = Stored::read(path);
  EXPECT_EQ(read.best("cpu", "r"), 3);
  EXPECT_EQ(read.best("other", "r"), std::nullopt);
  EXPECT_EQ(read.peer("avx2", "r", "p"), 2);
  EXPECT_THROW(stored("[]"), ResourceError);
}

}  // namespace
}  // namespace fleet::benchmarks

#include "benchmarks/checkpoints/restart_trace.h"

#include <fstream>
#include <gmock/gmock.h>

#include "base/error.h"
#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class RestartTraceTest : public ::testing::Test {
 protected:
  void write(const char* text) {
    std::ofstream(file_, std::ios::app) << text;
    trace_.read();
  }

  const TemporaryFolder folder_;
  const std::string file_ = folder_.file("trace");
  RestartTrace trace_{file_};
};

TEST_F(RestartTraceTest, IsEmptyBeforeThereIsAFile) {
  trace_.read();
  EXPECT_THAT(trace_.attempts(), IsEmpty());
}

TEST_F(RestartTraceTest, TellsAttemptsApart) {
  write("0 start 11 1.5\n0 from 0 2\n0 step 1 2.25\n0 step 2 2.5\n");
  write("1 start 12 3.5\n1 from 1 4\n");
  ASSERT_EQ(trace_.attempts().size(), 2U);
  const auto& first = trace_.attempts()[0];
  EXPECT_EQ(first.process, 11);
  EXPECT_EQ(first.start_s, 1.5);
  EXPECT_THAT(first.steps, ElementsAre(Pair(1, 2.25), Pair(2, 2.5)));
  EXPECT_EQ(first.highest(), 2);
  const auto& second = trace_.attempts()[1];
  EXPECT_EQ(second.from, 1);
  EXPECT_EQ(second.from_s, 4);
  EXPECT_EQ(second.highest(), 0);
}

TEST_F(RestartTraceTest, LeavesALineThatIsStillBeingWritten) {
  write("0 step 1 2.25\n0 step 2");
  EXPECT_EQ(trace_.attempts().at(0).highest(), 1);
  write("7 2.5\n");
  EXPECT_EQ(trace_.attempts().at(0).highest(), 27);
}

TEST_F(RestartTraceTest, RefusesOtherLines) {
  EXPECT_THROW(write("0 jump 1 2.25\n"), Error);
  EXPECT_THROW(write("0 step one 2.25\n"), Error);
}

}  // namespace
}  // namespace fleet::benchmarks

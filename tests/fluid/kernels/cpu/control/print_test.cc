// Op print: what it writes, when, and that values and gradients go through it.
#include <gmock/gmock.h>
#include <thread>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

using ::testing::HasSubstr;

class PrintTest : public ::testing::Test {
 protected:
  // y = x + x, printed; the sum of its elements, and the gradient of x.
  void build(const layers::PrintOptions& options) {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    Variable x = layers::data("x", {3});
    x.edit().stop_gradient = false;
    const Variable shown = layers::Print(layers::elementwise_add(x, x), options);
    const Variable sum = layers::reduce_sum(shown);
    gradient_ = gradients({sum}, {x}).front().name();
    sum_ = sum.name();
  }

  std::string output_of(int steps) {
    ::testing::internal::CaptureStdout();
    Executor executor;
    for (int step = 0; step < steps; ++step) {
      const auto fetched =
          executor.run(main_, {{"x", Tensor::from<float>({1, 2, 3}, {1, 3})}}, {sum_, gradient_});
      EXPECT_EQ(fetched[0].item<float>(), 12);
      EXPECT_EQ(fetched[1].values<float>()[2], 2);
    }
    return ::testing::internal::GetCapturedStdout();
  }

  Program main_;
  Program startup_;
  std::string sum_;
  std::string gradient_;
};

TEST_F(PrintTest, WritesALineOfValuesAndOneOfGradients) {
  build({.message = "doubled:"});
  EXPECT_EQ(output_of(1),
            "doubled: elementwise_add_0.tmp_0 float32 [1, 3] {2, 4, 6}\n"
            "doubled: print_0.tmp_0@GRAD float32 [1, 3] {1, 1, 1}\n");
}

TEST_F(PrintTest, SummarizesAndLeavesOutWhatIsNotAskedFor) {
  build({.summarize = 2,
         .print_tensor_name = false,
         .print_tensor_type = false,
         .print_tensor_shape = false,
         .print_phase = "forward"});
  EXPECT_EQ(output_of(1), "{2, 4, …}\n");
}

TEST_F(PrintTest, PrintsInTheFirstSteps) {
  build({.first_n = 2, .summarize = 1, .print_tensor_name = false, .print_phase = "backward"});
  EXPECT_EQ(output_of(5), "float32 [1, 3] {1, …}\nfloat32 [1, 3] {1, …}\n");
}

TEST_F(PrintTest, ShowsSequences) {
  const ProgramGuard programs(main_, startup_);
  const Variable x = layers::data("x", {1}, DType::kInt64, {.lod_level = 1});
  const Variable shown = layers::Print(x);
  Tensor words = Tensor::from<int64_t>({4, 5, 6}, {3, 1});
  words.set_lod({{0, 2, 3}});
  ::testing::internal::CaptureStdout();
  Executor executor;
  const auto fetched = executor.run(main_, {{"x", words}}, {shown});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "x int64 [3, 1] lod [[0, 2, 3]] {4, 5, 6}\n");
  EXPECT_EQ(fetched.front().lod(), words.lod());
}

TEST_F(PrintTest, LinesOfThreadsStayWhole) {
  build({.summarize = -1, .print_phase = "forward"});
  constexpr int kThreads = 4;
  constexpr int kRuns = 50;
  ::testing::internal::CaptureStdout();
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this] {
      Executor executor;
      for (int run = 0; run < kRuns; ++run) {
        executor.run(main_, {{"x", Tensor::from<float>({1, 2, 3}, {1, 3})}}, {sum_});
      }
    });
  }
  threads.clear();
  std::string wanted;
  for (int i = 0; i < kThreads * kRuns; ++i) {
    wanted += "elementwise_add_0.tmp_0 float32 [1, 3] {2, 4, 6}\n";
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), wanted);
}

TEST_F(PrintTest, RefusesAnUnknownPhase) {
  try {
    build({.print_phase = "sideways"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'sideways'"));
    EXPECT_THAT(error.what(), HasSubstr("forward, backward or both"));
  }
}

}  // namespace
}  // namespace fleet::fluid

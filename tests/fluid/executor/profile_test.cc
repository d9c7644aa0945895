#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "fluid/executor/profile_impl.h"
#include "tests/fluid/executor/mlp.h"

namespace fleet::fluid {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Profile::Call call_of(const std::string& type, int begin_us, int end_us, double flops = 0) {
  return {.type = type,
          .makes = "out",
          .begin = TimePoint(std::chrono::microseconds(begin_us)),
          .end = TimePoint(std::chrono::microseconds(end_us)),
          .bytes = 1000,
          .flops = flops};
}

TEST(Profile, AddsUpCallsByTypeTheSlowestFirst) {
  Profile profile;
  profile.add(call_of("tanh", 0, 10));
  profile.add(call_of("mul", 10, 50, 80'000));
  profile.add(call_of("mul", 60, 110, 100'000));
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].type, "mul");
  EXPECT_EQ(rows[0].count, 2u);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 90e-6);
  EXPECT_DOUBLE_EQ(rows[0].share, 0.9);
  EXPECT_DOUBLE_EQ(rows[0].bytes, 2000);
  EXPECT_EQ(profile.table(),
            "  op    count  total ms  mean us   share   bytes  GFLOP/s\n"
            "  mul       2     0.090     45.0  90.0 %  2.0 kB      2.0\n"
            "  tanh      1     0.010     10.0  10.0 %  1.0 kB         \n");
}

TEST(Profile, TellsOpsOfSeveralPlacesApart) {
  Profile profile;
  profile.add(call_of("sum", 0, 10));
  for (const char* place : {"cuda:0", "to cuda:0"}) {
    Profile::Call call = call_of(place[0] == 't' ? "memcpy" : "sum", 0, 20);
    call.place = place;
    profile.add(call);
  }
  EXPECT_EQ(profile.table(),
            "  op          place  count  total ms  mean us   share   bytes  GFLOP/s\n"
            "  memcpy  to cuda:0      1     0.020     20.0  40.0 %  1.0 kB         \n"
            "  sum        cuda:0      1     0.020     20.0  40.0 %  1.0 kB         \n"
            "  sum           cpu      1     0.010     10.0  20.0 %  1.0 kB         \n");
  const auto events = nlohmann::json::parse(profile.trace())["traceEvents"];
  EXPECT_EQ(events[0]["args"]["place"], "cpu");
  EXPECT_EQ(events[2]["args"]["place"], "to cuda:0");
}

TEST(Profile, TracesEveryCallWithItsThread) {
  Profile profile;
  profile.add(call_of("a \"quoted\"", 5, 15));
  std::thread([&profile] { profile.add(call_of("b", 25, 26)); }).join();
  const auto events = nlohmann::json::parse(profile.trace())["traceEvents"];
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["name"], "a \"quoted\"");
  EXPECT_EQ(events[0]["ph"], "X");
  EXPECT_EQ(events[0]["dur"], 10.0);
  EXPECT_EQ(events[1]["ts"], 20.0);
  EXPECT_NE(events[0]["tid"], events[1]["tid"]);
}

double flops_of(const Operator& op, const RunShapes::Shapes& inputs,
                const RunShapes::Shapes& outputs) {
  return OpTable::standard().at(op.type).flops({op, inputs, outputs});
}

TEST(Profile, CountsTheArithmeticOfProductsAndConvolutions) {
  Operator mul{.type = "mul", .inputs = {{"X", {"x"}}, {"Y", {"y"}}}, .outputs = {{"Out", {"o"}}}};
  EXPECT_DOUBLE_EQ(flops_of(mul, {{64, 32}, {32, 10}}, {{64, 10}}), 2.0 * 64 * 32 * 10);
  mul.type = "matmul";
  EXPECT_DOUBLE_EQ(flops_of(mul, {{3, 8, 4}, {3, 4, 5}}, {{3, 8, 5}}), 2.0 * 3 * 8 * 4 * 5);
  const Operator gradient{.type = "mul_grad",
                          .inputs = {{"Out@GRAD", {"g"}}, {"X", {"x"}}, {"Y", {"y"}}},
                          .outputs = {{"X@GRAD", {"a"}}, {"Y@GRAD", {"b"}}}};
  EXPECT_DOUBLE_EQ(flops_of(gradient, {{64, 10}, {64, 32}, {32, 10}}, {{64, 32}, {32, 10}}),
                   4.0 * 64 * 32 * 10);
  const Operator conv{.type = "conv2d",
                      .inputs = {{"Filter", {"f"}}, {"Input", {"x"}}},
                      .outputs = {{"Output", {"o"}}}};
  EXPECT_DOUBLE_EQ(flops_of(conv, {{16, 3, 5, 5}, {2, 3, 28, 28}}, {{2, 16, 24, 24}}),
                   2.0 * 2 * 16 * 24 * 24 * 3 * 5 * 5);
  EXPECT_FALSE(OpTable::standard().at("tanh").flops);
}

class ProfileFlag : public ::testing::Test {
 protected:
  ProfileFlag() { setenv("FLAGS_profile", folder_.c_str(), 1); }
  ~ProfileFlag() override {
    unsetenv("FLAGS_profile");
    fs::remove_all(folder_);
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    std::ostringstream text;
    text << file.rdbuf();
    return std::move(text).str();
  }

  fs::path folder_ = fs::temp_directory_path() / ("profile_" + std::to_string(getpid()));
};

TEST_F(ProfileFlag, WritesWhatAnExecutorRanWhenItIsGone) {
  const testing::Mlp mlp;
  constexpr int kSteps = 3;
  {
    Executor executor;
    Executor shared = executor.share();
    executor.run(mlp.startup);
    for (int step = 0; step < kSteps; ++step) {
      (step == 0 ? shared : executor).run(mlp.main, testing::batch(16, 0), {mlp.cost});
    }
    EXPECT_FALSE(fs::exists(folder_));
  }
  const std::string name = "profile_" + std::to_string(getpid()) + "_0";
  const auto events = nlohmann::json::parse(read(name + ".json"))["traceEvents"];
  const size_t ops = mlp.main.global_block().op_count();
  EXPECT_EQ(events.size(), kSteps * ops + mlp.startup.global_block().op_count());
  EXPECT_THAT(read(name + ".txt"), AllOf(HasSubstr("mul_grad"), HasSubstr("GFLOP/s"),
                                         HasSubstr("uniform_random"), Not(HasSubstr("wait"))));
  EXPECT_FALSE(fs::exists(folder_ / ("profile_" + std::to_string(getpid()) + "_1.txt")));
}

TEST_F(ProfileFlag, YieldsToTheOptions) {
  const testing::Mlp mlp;
  const fs::path other = folder_.string() + "_of_options";
  Executor(CPUPlace(), {.profile = ""}).run(mlp.startup);
  Executor(CPUPlace(), {.profile = other.string()}).run(mlp.startup);
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(fs::exists(other / ("profile_" + std::to_string(getpid()) + "_0.txt")));
  fs::remove_all(other);
}

TEST_F(ProfileFlag, DoesNotChangeWhatIsComputed) {
  const auto train = [] {
    const testing::Mlp mlp;
    Executor executor;
    executor.run(mlp.startup);
    std::vector<float> losses;
    for (uint64_t step = 0; step < 3; ++step) {
      const auto fetched = executor.run(mlp.main, testing::batch(16, step), {mlp.cost});
      losses.push_back(fetched.front().item<float>());
    }
    return losses;
  };
  const auto measured = train();
  unsetenv("FLAGS_profile");
  EXPECT_EQ(train(), measured);
}

}  // namespace
}  // namespace fleet::fluid

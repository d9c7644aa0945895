// Learning-rate schedules: the ops that the library's layers append, and the rates of 200 runs.
#include "base/strings.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_net.h"
#include "tests/golden/numeric/numeric_case.h"
#include "tests/golden/numeric/numeric_departures.h"
#include "tests/golden/numeric/program_text.h"

namespace fleet::fluid::golden {
namespace {

// A schedule as golden nets write it.
Json net_schedule(const Json& schedule) {
  if (!schedule.is_object()) return schedule;
  Json args = schedule;
  args.erase("kind");
  if (args.contains("inner")) {
    args["learning_rate"] = net_schedule(Json(args["inner"]));
    args.erase("inner");
  }
  return {{"schedule", schedule["kind"]}, {"args", args}};
}

class Schedules : public FileCase {
 protected:
  struct Built {
    Program main;
    Program startup;
    std::string rate;
  };
  void build(Built& built, fleet::golden::Form form) const {
    const ProgramGuard programs(built.main, built.startup);
    const unique_name::Guard names;
    const auto rate = fleet::golden::make_rate(net_schedule(json_["schedule"]), form);
    built.rate = rate.variable().name();
  }

  std::string compare(const Built& built) const {
    Executor executor;
    executor.run(built.startup);
    const Tensor expected = tensor(json_["tensor"].get<std::string>());
    Tensor got(DType::kFloat32, expected.shape());
    for (int64_t i = 0; i < expected.numel(); ++i) {
      got.data<float>()[i] = executor.run(built.main, {}, {built.rate})[0].item<float>();
    }
    return difference(got, expected, rtol(json_["tolerance"]));
  }
};

TEST_P(Schedules, InPaddlesFormMatchInProgramAndRates) {
  Built built;
  build(built, fleet::golden::Form::kPaddle);
  EXPECT_EQ(op_texts(built.main.global_block()), op_texts(json_["ops"]));
  std::vector<std::vector<std::string>> inner;
  for (int32_t i = 1; i < built.main.block_count(); ++i) {
    inner.emplace_back();
    for (const auto& op : built.main.block(i).ops()) inner.back().push_back(op->type);
  }
  EXPECT_EQ(inner, json_["sub_block_ops"].get<std::vector<std::vector<std::string>>>());
  EXPECT_EQ(compare(built), "");
}

TEST_P(Schedules, MatchUnlessADepartureIsListed) {
  Built built;
  build(built, fleet::golden::Form::kOwn);
  const std::string differs = compare(built);
  // A departure may lie beyond the steps that the file has: only an unlisted one is a failure.
  if (!find_departures("lr_schedules", json_).empty()) return;
  EXPECT_EQ(differs, "");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Schedules);
INSTANTIATE_TEST_SUITE_P(Golden, Schedules, ::testing::ValuesIn(cases("lr_schedules")), case_name);

}  // namespace
}  // namespace fleet::fluid::golden

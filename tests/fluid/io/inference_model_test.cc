#include "fluid/io/inference_model.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fluid/io/persistables.h"
#include "fluid/layers/layers.h"
#include "fluid/layers/norm.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/testing/own_ops.h"

namespace fleet::fluid::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

// What `action` is refused with, which must be of that code.
template <class Action>
std::string refusal(const Action& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// A net with a second head, dropout, moving statistics and an optimizer: what inference leaves out,
// or takes in its test form.
class InferenceModels : public ::testing::Test {
 protected:
  InferenceModels() {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {3});
    const Variable y = layers::data("y", {1});
    const Variable hidden =
        layers::dropout(layers::batch_norm(layers::fc(x, 8, {.act = "relu"})), 0.5);
    score_ = layers::fc(hidden, 1, {.param_attr = {.name = "score.w"}});
    other_ = layers::fc(hidden, 2, {.param_attr = {.name = "other.w"}});
    const Variable cost = layers::mean(layers::square_error_cost(score_, y));
    optimizer::Adam({.learning_rate = 0.1}).minimize(cost);
    executor_.run(startup_);
    for (int i = 0; i < 3; ++i) {
      executor_.run(main_, {{"x", rows(i)}, {"y", Tensor::zeros(DType::kFloat32, {4, 1})}});
    }
  }

  static Tensor rows(int step) {
    std::vector<float> values;
    values.reserve(12);
    for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>((i * 7 + step) % 5) - 2.0f);
    return Tensor::from(values, {4, 3});
  }

  void save() { save_inference_model(directory_.path(), {"x"}, {score_}, executor_, main_); }

  TemporaryDirectory directory_;
  Program main_;
  Program startup_;
  Executor executor_;
  Variable score_;
  Variable other_;
};

TEST_F(InferenceModels, ComeBackWithTheSameOutputs) {
  save();
  Executor fresh;
  const InferenceModel model = load_inference_model(directory_.path(), fresh);
  EXPECT_THAT(model.feeds, ElementsAre("x"));
  EXPECT_THAT(model.fetches, ElementsAre(score_.name()));
  const Program tested = main_.clone(true);
  const Tensor y = Tensor::zeros(DType::kFloat32, {4, 1});
  for (int step = 5; step < 8; ++step) {
    const Tensor expected = executor_.run(tested, {{"x", rows(step)}, {"y", y}}, {score_})[0];
    const Tensor got = fresh.run(model.program, {{"x", rows(step)}}, {model.fetches.front()})[0];
    ASSERT_EQ(got.shape(), expected.shape());
    EXPECT_THAT(got.values<float>(), ::testing::ElementsAreArray(expected.values<float>()));
  }
}

TEST_F(InferenceModels, MayUseOpsOfOnesOwn) {
  Program main;
  main.set_op_library(fleet::testing::own_ops());
  const ProgramGuard programs(main, startup_);
  const Variable out = fleet::testing::cubed(layers::data("in", {3}), 2);
  save_inference_model(directory_.path(), {"in"}, {out}, executor_, main);
  const Tensor expected = executor_.run(main, {{"in", rows(0)}}, {out})[0];
  const auto model = load_inference_model(directory_.path(), executor_, {}, main.op_library());
  const Tensor got = executor_.run(model.program, {{"in", rows(0)}}, {model.fetches[0]})[0];
  EXPECT_THAT(got.values<float>(), ::testing::ElementsAreArray(expected.values<float>()));
  const auto without = load_inference_model(directory_.path(), executor_);
  EXPECT_THAT(refusal(
                  [&] {
                    executor_.run(without.program, {{"in", rows(0)}}, {out.name()});
                  },
                  ErrorCode::kNotSupported),
              AllOf(HasSubstr("op 'cubed'"), HasSubstr("set_op_library")));
}

TEST_F(InferenceModels, HoldWhatTheTargetsNeed) {
  save();
  Executor fresh;
  const InferenceModel model = load_inference_model(directory_.path(), fresh);
  for (const auto& op : model.program.global_block().ops()) {
    EXPECT_TRUE(has_role(op->role, OpRole::kForward)) << op->to_string();
    const Attribute* test = op->attr("is_test");
    EXPECT_TRUE(test == nullptr || std::get<bool>(*test)) << op->type;
  }
  EXPECT_EQ(model.program.global_block().find_var("y"), nullptr);
  const auto saved = load_tensors(directory_.path());
  EXPECT_TRUE(saved.contains("score.w"));
  EXPECT_FALSE(saved.contains("other.w"));
  EXPECT_FALSE(saved.contains("learning_rate_0"));
}

TEST_F(InferenceModels, AreRefusedWhenTheyNeedMore) {
  const auto save = [this](const std::vector<std::string>& feeds) {
    save_inference_model(directory_.path(), feeds, {score_}, executor_, main_);
  };
  EXPECT_THAT(refusal([&] { save({}); }, ErrorCode::kFeed),
              AllOf(HasSubstr("'x'"), HasSubstr("not fed")));
  EXPECT_THAT(refusal([&] { save({"z"}); }, ErrorCode::kUnknownName), HasSubstr("'z'"));
}

TEST_F(InferenceModels, AreRefusedWhenDamaged) {
  save();
  const auto model = directory_.path() / kModelFile;
  const auto size = std::filesystem::file_size(model);
  Executor fresh;
  const auto load = [&] { load_inference_model(directory_.path(), fresh); };
  std::filesystem::resize_file(model, size / 2);
  EXPECT_THAT(refusal(load, ErrorCode::kCorruptFile), HasSubstr(kModelFile));
  std::ofstream(model)
      << R"({"format_version": 1, "feeds": [], "fetches": ["x"], "program": "{}"})";
  EXPECT_THROW(load(), Error);
  std::ofstream(model) << R"({"format_version": 2, "feeds": [], "fetches": [], "program": "{}"})";
  EXPECT_THAT(refusal(load, ErrorCode::kCorruptFile), HasSubstr("version"));
  std::filesystem::remove(model);
  EXPECT_THAT(refusal(load, ErrorCode::kInput), HasSubstr("__model__"));
}

}  // namespace
}  // namespace fleet::fluid::io

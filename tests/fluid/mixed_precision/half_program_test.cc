#include "fluid/mixed_precision/half_program.h"

#include <memory>

#include "fluid/backward/backward.h"
#include "fluid/kernels/op_library.h"
#include "fluid/ops/append.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::mixed_precision {
namespace {

using testing::ElementsAre;

class HalfProgram : public NetFixture {
 protected:
  void rewrite(const PrecisionLists& lists = {}, DType half = DType::kFloat16) {
    compute_in_halves(main_, PrecisionTable(lists, main_), half);
    EXPECT_NO_THROW(verify(main_));
  }
  DType dtype(const Variable& variable) { return block().var(variable.name()).dtype; }
  DType dtype(const std::string& name) { return block().var(name).dtype; }
  Variable x() { return layers::data("x", {4}); }
};

TEST_F(HalfProgram, ProductsAreHalvesAndWhatFollowsThem) {
  const Variable hidden = layers::fc(x(), 3, {.act = "relu"});
  const Variable mean = layers::mean(hidden);
  rewrite();
  EXPECT_EQ(dtype(hidden), DType::kFloat16);
  EXPECT_EQ(dtype(mean), DType::kFloat32);
  EXPECT_EQ(dtype("fc_0.w_0"), DType::kFloat32);
  EXPECT_THAT(op_types(), ElementsAre("cast", "cast", "mul", "cast", "elementwise_add", "relu",
                                      "cast", "mean"));
}

TEST_F(HalfProgram, BrainFloatsHaveNamesOfTheirOwn) {
  layers::mean(layers::fc(x(), 3));
  rewrite({}, DType::kBFloat16);
  EXPECT_EQ(dtype("x.cast_bf16"), DType::kBFloat16);
  EXPECT_EQ(dtype("fc_0.tmp_1.cast_fp32"), DType::kFloat32);
}

TEST_F(HalfProgram, EachValueIsCastOnce) {
  const Variable in = x();
  layers::fc(in, 3);
  layers::fc(in, 5);
  rewrite();
  int casts = 0;
  for (const auto& op : block().ops()) casts += op->type == "cast" && op->input("X")[0] == "x";
  EXPECT_EQ(casts, 1);
}

TEST_F(HalfProgram, AVariableThatIsWrittenAgainIsCastAgain) {
  const Variable in = layers::assign(x());
  const Variable first = layers::fc(in, 3);
  layers::assign(layers::exp(in), in);
  const Variable second = layers::fc(in, 3);
  rewrite();
  std::vector<std::string> read;
  for (const auto& op : block().ops()) {
    if (op->type == "mul") read.push_back(op->input("X")[0]);
  }
  ASSERT_EQ(read.size(), 2u);
  EXPECT_NE(read[0], read[1]);
  EXPECT_EQ(dtype(first), DType::kFloat16);
  EXPECT_EQ(dtype(second), DType::kFloat16);
}

TEST_F(HalfProgram, StatisticsOfBatchNormStayFloats) {
  const Variable image = layers::data("image", {2, 5, 5});
  const Variable convolved = layers::conv2d(image, 3, 3);
  const Variable normed = layers::batch_norm(convolved, {.act = "relu"});
  const Variable loss = layers::mean(normed);
  rewrite();
  EXPECT_EQ(dtype(normed), DType::kFloat16);
  for (const char* name : {"batch_norm_0.w_0", "batch_norm_0.b_0", "batch_norm_0.w_1",
                           "batch_norm_0.w_2", "batch_norm_0.tmp_0", "batch_norm_0.tmp_1"}) {
    EXPECT_EQ(dtype(std::string(name)), DType::kFloat32) << name;
  }
  append_backward(loss);
  EXPECT_NO_THROW(verify(main_));
  EXPECT_EQ(dtype("batch_norm_0.w_0@GRAD"), DType::kFloat32);
}

TEST_F(HalfProgram, ListsOfOnesOwnWin) {
  const Variable first = layers::fc(x(), 3, {.act = "relu"});
  const Variable norm = layers::layer_norm(first, {.scale = false, .shift = false});
  rewrite({.custom_white_list = {"layer_norm"},
           .custom_black_list = {"relu"},
           .custom_black_varnames = {}});
  EXPECT_EQ(dtype(first), DType::kFloat32);
  EXPECT_EQ(dtype(norm), DType::kFloat16);
}

TEST_F(HalfProgram, NamedVariablesStayFloats) {
  const Variable first = layers::fc(x(), 3, {.bias_attr = {.omit = true}});
  const Variable second = layers::fc(first, 3, {.bias_attr = {.omit = true}});
  rewrite({.custom_black_varnames = {first.name()}});
  EXPECT_EQ(dtype(first), DType::kFloat32);
  EXPECT_EQ(dtype(second), DType::kFloat32) << "it reads the variable";
}

TEST_F(HalfProgram, WhatLoopsAndConditionsNameStaysFloat) {
  const Variable hidden = layers::fc(x(), 3);
  const Variable low = layers::fill_constant(Shape{1}, DType::kFloat32, 0.0);
  const Variable high = layers::fill_constant(Shape{1}, DType::kFloat32, 1.0);
  const auto results = layers::cond(
      layers::less_than(low, high), [&] { return std::vector<Variable>{layers::exp(hidden)}; },
      [&] { return std::vector<Variable>{hidden}; });
  layers::mean(results[0]);
  rewrite();
  EXPECT_EQ(dtype(hidden), DType::kFloat32);
}

TEST_F(HalfProgram, WhatTheUserCastsIsWhatHeSays) {
  const Variable hidden = layers::fc(x(), 3);
  const Variable wide = layers::cast(hidden, DType::kFloat32);
  const Variable whole = layers::cast(hidden, DType::kInt32);
  rewrite();
  EXPECT_EQ(dtype(hidden), DType::kFloat16);
  EXPECT_EQ(dtype(wide), DType::kFloat32);
  EXPECT_EQ(dtype(whole), DType::kInt32);
}

TEST_F(HalfProgram, SchedulesAndPersistableVariablesStayAsTheyAre) {
  const Variable kept = layers::create_global_var(Shape{1}, 1.0, DType::kFloat32,
                                                  {.persistable = true, .name = "kept"});
  const Variable hidden = layers::mean(layers::fc(x(), 3));
  layers::assign(layers::elementwise_add(kept, hidden), kept);
  {
    const RoleGuard role(main_, OpRole::kLrSched);
    layers::fc(x(), 3);
  }
  rewrite();
  EXPECT_EQ(dtype(kept), DType::kFloat32);
  const Operator& last = block().op(block().op_count() - 2);
  EXPECT_EQ(last.type, "mul");
  EXPECT_EQ(last.input("X")[0], "x");
}

TEST_F(HalfProgram, GradientsFlowOnlyWhereTheyDid) {
  const Variable loss = layers::mean(layers::fc(x(), 3));
  rewrite();
  append_backward(loss);
  EXPECT_FALSE(block().has_var("x.cast_fp16@GRAD"));
  EXPECT_EQ(dtype("fc_0.w_0@GRAD"), DType::kFloat32);
  EXPECT_EQ(dtype("fc_0.w_0.cast_fp16@GRAD"), DType::kFloat16);
}

// An op of one's own that takes float32 alone.
std::shared_ptr<OpLibrary> with_picky_op() {
  auto library = std::make_shared<OpLibrary>();
  OpSchema picky;
  picky.type = "picky";
  picky.inputs = {{.name = "X"}};
  picky.outputs = {{.name = "Out"}};
  picky.infer = [](InferContext& context) {
    context.require_dtype("X", DType::kFloat32);
    context.share("X", "Out");
  };
  library->ops().add(std::move(picky));
  return library;
}

TEST_F(HalfProgram, WhatIsRefusedStaysAsItWas) {
  main_.set_op_library(with_picky_op());
  const Variable hidden = layers::fc(x(), 3);
  VarDesc out;
  out.name = "out";
  block().add_var(std::move(out));
  append_op(block(), {.type = "picky",
                      .inputs = {{"X", {hidden.name()}}},
                      .outputs = {{"Out", {"out"}}},
                      .attrs = {}});
  const std::string before = main_.to_string();
  EXPECT_THROW(rewrite({.custom_white_list = {"picky"}}), Error);
  EXPECT_EQ(main_.to_string(), before);
  rewrite();
  EXPECT_EQ(dtype(hidden), DType::kFloat16);
}

TEST_F(HalfProgram, ABackwardPartIsRefused) {
  append_backward(layers::mean(layers::fc(x(), 3)));
  expect_error([&] { rewrite(); }, ErrorCode::kPrecondition, {"minimize first"});
}

TEST_F(HalfProgram, WrongListsAreNamed) {
  layers::fc(x(), 3);
  expect_error([&] { rewrite({.custom_white_list = {"conv2b"}}); }, ErrorCode::kInvalidArgument,
               {"custom_white_list", "did you mean 'conv2d'"});
  expect_error([&] { rewrite({.custom_white_list = {"relu"}, .custom_black_list = {"relu"}}); },
               ErrorCode::kInvalidArgument, {"custom_black_list", "relu"});
  expect_error([&] { rewrite({.custom_black_varnames = {"fc_0.tmp_9"}}); },
               ErrorCode::kInvalidArgument, {"custom_black_varnames", "fc_0.tmp_"});
}

}  // namespace
}  // namespace fleet::fluid::mixed_precision

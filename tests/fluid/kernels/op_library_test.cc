// Ops from outside the library: programs carry them to whoever builds, rewrites and runs them.
#include "fluid/kernels/op_library.h"

#include <cstring>
#include <functional>

#include "fluid/backward/backward.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/control_flow.h"
#include "fluid/ops/append.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/fluid/net_fixture.h"
#include "tests/testing/own_ops.h"

namespace fleet::fluid {
namespace {

using ::testing::Contains;
using testing::cubed;
using ::testing::ElementsAre;
using ::testing::Not;
using testing::own_ops;
using testing::SignSgd;

std::vector<float> floats(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

class OwnOps : public NetFixture {
 protected:
  OwnOps() { main_.set_op_library(own_ops()); }

  static Feed rows() {
    return {{"x", Tensor::from(std::vector<float>{0.5F, -1, 2, 0.25F}, {2, 2})}};
  }
  // A net of x [rows, 2]; the mean of what it makes.
  static Variable loss_of(const std::function<Variable(const Variable&)>& net) {
    return layers::mean(net(layers::data("x", {2})));
  }
  static Variable two_layers(const Variable& x) {
    return layers::fc(cubed(layers::fc(x, 3), 0.5F), 1);
  }
};

TEST_F(OwnOps, ComputeWhatTheirKernelsSay) {
  const Variable out = cubed(layers::data("x", {2}), 2);
  EXPECT_EQ(out.shape(), Shape({-1, 2}));
  Executor executor;
  EXPECT_THAT(floats(executor.run(main_, rows(), {out})[0]), ElementsAre(0.25F, -2, 16, 0.03125F));
}

TEST_F(OwnOps, MinimizeMakesTheirGradients) {
  const Variable x = layers::data("x", {2});
  const Variable out = cubed(layers::fc(x, 2, {.bias_attr = {.omit = true}}), 2);
  const Variable loss = layers::reduce_sum(out);
  optimizer::SGD({.learning_rate = 1}).minimize(loss);
  EXPECT_THAT(op_types(), Contains("cubed_grad"));
  EXPECT_EQ(op_of("cubed_grad").attrs.at("a"), Attribute(2.0));
  Executor executor;
  executor.run(startup_);
  const std::string weight = main_.global_block().parameters().front()->name;
  Tensor& w = executor.scope().tensor(weight);
  const std::vector<float> identity = {1, 0, 0, 1};
  std::memcpy(w.data<float>(), identity.data(), sizeof(float) * identity.size());
  const Feed one = {{"x", Tensor::from(std::vector<float>{1, 3}, {1, 2})}};
  // With w = 1 the sum is of 2 x^3, so dw_ij = 6 x_i x_j^2.
  EXPECT_THAT(floats(executor.run(main_, one, {weight + "@GRAD"})[0]), ElementsAre(6, 54, 18, 162));
}

TEST_F(OwnOps, GradientsGoThroughThem) {
  const Variable x = layers::data("x", {2});
  x.set_stop_gradient(false);
  const Variable out = cubed(x, 1);
  const auto found = gradients({out}, {x});
  Executor executor;
  EXPECT_THAT(floats(executor.run(main_, rows(), {found[0]})[0]),
              ElementsAre(0.75F, 3, 12, 0.1875F));
}

TEST_F(OwnOps, TrainWithRecomputationAsWithoutIt) {
  const auto train = [this](bool recompute) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    main.set_op_library(main_.op_library());
    startup.set_random_seed(5);
    Variable hidden;
    const Variable loss = loss_of([&](const Variable& x) {
      hidden = layers::fc(cubed(x, 0.5F), 3);
      return layers::fc(cubed(hidden, 0.5F), 1);
    });
    optimizer::MinimizeOptions options;
    if (recompute) options.checkpoints = {hidden.name()};
    optimizer::SGD({.learning_rate = 0.1}).minimize(loss, options);
    Executor executor(CPUPlace(), {.logical_shards = 2});
    executor.run(startup);
    std::vector<float> losses;
    for (int step = 0; step < 4; ++step) {
      losses.push_back(executor.run(main, rows(), {loss})[0].item<float>());
    }
    return losses;
  };
  const auto losses = train(false);
  EXPECT_EQ(train(true), losses);
  EXPECT_LT(losses.back(), losses.front());
}

TEST_F(OwnOps, WorkInsideOfBlocks) {
  const Variable loss = loss_of([](const Variable& x) {
    const Variable h = layers::fc(x, 1, {.param_attr = {.name = "w"}});
    const Variable always = layers::fill_constant({1}, DType::kBool, 1);
    return layers::cond(
        always, [&] { return std::vector{cubed(h, 1)}; },
        [&] { return std::vector{layers::scale(h, {.scale = 0})}; })[0];
  });
  optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  Executor executor;
  executor.run(startup_);
  const auto before = floats(executor.scope().tensor("w"));
  executor.run(main_, rows(), {loss});
  EXPECT_NE(floats(executor.scope().tensor("w")), before);
}

TEST_F(OwnOps, MayBeUpdateRules) {
  const Variable loss = loss_of(two_layers);
  SignSgd(0.25).minimize(loss);
  EXPECT_THAT(op_types(), Contains("sign_sgd"));
  Executor executor;
  executor.run(startup_);
  const std::string weight = main_.global_block().parameters().front()->name;
  const auto before = floats(executor.scope().tensor(weight));
  executor.run(main_, rows());
  const auto after = floats(executor.scope().tensor(weight));
  ASSERT_EQ(after.size(), 6u);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_FLOAT_EQ(std::abs(after[i] - before[i]), 0.25F);
}

TEST_F(OwnOps, GoWithEveryCopyOfAProgram) {
  const Variable loss = loss_of(two_layers);
  const Program test = main_.clone(true);
  const std::vector<std::string> targets = {loss.name()};
  const Program small = test.prune(targets);
  Program assigned;
  assigned = test;
  const Program moved = std::move(assigned);
  Executor executor;
  executor.run(startup_);
  const auto expected = floats(executor.run(main_, rows(), {loss})[0]);
  for (const Program* copy : {&test, &small, &moved}) {
    EXPECT_EQ(copy->op_library(), main_.op_library());
    verify(*copy);
    EXPECT_EQ(floats(executor.run(*copy, rows(), {loss})[0]), expected);
  }
}

TEST_F(OwnOps, AreGivenAgainToAProgramFromAFile) {
  const Variable loss = loss_of(two_layers);
  Executor executor;
  executor.run(startup_);
  const auto expected = floats(executor.run(main_, rows(), {loss})[0]);
  for (Program read : {Program::from_bytes(main_.to_bytes()).value(),
                       Program::from_json(main_.to_json()).value()}) {
    EXPECT_EQ(read.to_string(), main_.to_string());
    expect_error([&] { verify(read); }, ErrorCode::kUnknownName,
                 {"no op 'cubed'", "Program::set_op_library"});
    expect_error([&] { executor.run(read, rows(), {loss.name()}); }, ErrorCode::kNotSupported,
                 {"op 'cubed'", "Program::set_op_library"});
    read.set_op_library(main_.op_library());
    verify(read);
    EXPECT_EQ(floats(executor.run(read, rows(), {loss.name()})[0]), expected);
  }
}

TEST_F(OwnOps, OfAnotherLibraryCountAtTheNextRun) {
  const Variable out = cubed(layers::data("x", {2}), 1);
  Executor executor;
  EXPECT_EQ(floats(executor.run(main_, rows(), {out})[0])[2], 8);
  auto other = own_ops();
  other->kernels().add_first("cubed", DeviceKind::kCpu, DType::kFloat32,
                             {.name = "zeros", .prepare = [](PrepareContext& context) {
                                const Shape shape = context.in("X").shape;
                                const int at = context.set_output("Out", shape, DType::kFloat32);
                                return make_prepared([=](const KernelContext& c) {
                                  std::memset(c.out<float>(at), 0, c.output(at).bytes());
                                });
                              }});
  main_.set_op_library(std::move(other));
  EXPECT_EQ(floats(executor.run(main_, rows(), {out})[0])[2], 0);
}

TEST_F(OwnOps, OutliveWhoeverMadeThem) {
  const Variable out = cubed(layers::data("x", {2}), 1);
  auto program = std::make_unique<Program>(main_);
  main_.set_op_library(nullptr);
  Executor executor;
  EXPECT_EQ(floats(executor.run(*program, rows(), {out.name()})[0])[2], 8);
  program->set_op_library(nullptr);
  expect_error([&] { executor.run(*program, rows(), {out.name()}); }, ErrorCode::kNotSupported,
               {"op 'cubed'"});
}

TEST_F(OwnOps, AreCheckedAsTheLibrarysAre) {
  const Variable x = layers::data("x", {2});
  Operator op;
  op.type = "cubed";
  op.inputs["X"] = {x.name()};
  op.outputs["Out"] = {x.name()};
  op.attrs["b"] = 1.0;
  expect_error([&] { append_op(block(), op); }, ErrorCode::kInvalidProgram, {"cubed", "'b'"});
  op.attrs = {};
  op.inputs["Y"] = {x.name()};
  expect_error([&] { append_op(block(), op); }, ErrorCode::kInvalidProgram, {"cubed", "'Y'"});
  op.inputs.erase("Y");
  main_.set_op_library(nullptr);
  expect_error([&] { append_op(block(), op); }, ErrorCode::kUnknownName,
               {"no op 'cubed'", "Program::set_op_library"});
}

// Rows that stand at `Places`, which come first in the row and are no float32.
std::shared_ptr<OpLibrary> taking_library(bool typed_by_rows) {
  auto library = own_ops();
  const SlotSpec rows = one("Rows");
  library->ops().add(
      make_schema<NoAttrs>("take", {one("Places"), typed_by_rows ? typed(rows) : rows},
                           {one("Out")}, [](InferContext& context) {
                             const VarDesc& from = context.input("Rows");
                             context.set_output("Out", context.input("Places").shape, from.dtype);
                           }));
  library->kernels().add_last(
      "take", DeviceKind::kCpu, DType::kFloat32,
      {.name = "own", .prepare = [](PrepareContext& context) {
         const Shape shape = context.in("Places").shape;
         const int places = context.input("Places");
         const int from = context.input("Rows");
         const int out = context.set_output("Out", shape, DType::kFloat32);
         return make_prepared([=, count = shape.numel()](const KernelContext& c) {
           for (int64_t i = 0; i < count; ++i) {
             c.out<float>(out)[i] = c.in<float>(from)[c.in<int64_t>(places)[i]];
           }
         });
       }});
  return library;
}

TEST_F(OwnOps, SayWhichSlotTypesTheirKernels) {
  main_.set_op_library(taking_library(true));
  const Variable rows = layers::data("rows", {1});
  const Variable places = layers::data("places", {1}, DType::kInt64);
  block().add_var({.name = "out"});
  Operator op;
  op.type = "take";
  op.inputs = {{"Places", {places.name()}}, {"Rows", {rows.name()}}};
  op.outputs = {{"Out", {"out"}}};
  append_op(block(), op);
  const Feed feed = {{"rows", Tensor::from<float>({1, 2, 3}, {3, 1})},
                     {"places", Tensor::from<int64_t>({2, 0}, {2, 1})}};
  Executor executor;
  EXPECT_THAT(floats(executor.run(main_, feed, {"out"})[0]), ElementsAre(3, 1));
  // Without the mark the first slot does, and there is no kernel for int64.
  main_.set_op_library(taking_library(false));
  expect_error([&] { executor.run(main_, feed, {"out"}); }, ErrorCode::kNotSupported,
               {"take", "a kernel for int64"});
}

TEST(OpLibrary, LeavesTheStandardTablesAsTheyAre) {
  const auto library = own_ops();
  EXPECT_NE(library->ops().find("relu"), nullptr);
  EXPECT_TRUE(library->kernels().knows("relu", DeviceKind::kCpu));
  EXPECT_EQ(OpTable::standard().find("cubed"), nullptr);
  EXPECT_THAT(KernelTable::standard().ops(DeviceKind::kCpu), Not(Contains("cubed")));
  const Program without;
  EXPECT_EQ(&op_table(without), &OpTable::standard());
  EXPECT_EQ(&kernel_table(without), &KernelTable::standard());
}

}  // namespace
}  // namespace fleet::fluid

// Kernels against each other and against what they promise: backends, dropout, selected rows.
#include "base/strings.h"
#include "fluid/kernels/device_kernel_list.h"
#include "fluid/ops/append.h"
#include "tests/fluid/gradient_check.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;

// The standard kernels without the first `skip` of each list that is longer.
KernelTable without_first(size_t skip) {
  KernelTable table;
  for (const auto& row : KernelTable::standard().rows()) {
    const size_t from = std::min(skip, row.kernels.size() - 1);
    for (size_t i = from; i < row.kernels.size(); ++i) {
      table.add_last(row.op, row.device, row.dtype, row.kernels[i]);
    }
  }
  return table;
}

struct ConvCase {
  Shape image;
  int64_t filters;
  layers::Pair size;
  layers::Conv2dOptions options;
  int64_t batch = 3;
};

class ConvBackends : public NetFixture, public testing::WithParamInterface<int> {};

ConvCase conv_case(int i) {
  switch (i) {
    case 0:
      return {{3, 9, 8}, 5, 3, {}};
    case 1:
      return {{4, 9, 8}, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0, 2, 1}, .groups = 2}};
    case 2:
      return {{6, 7, 7}, 6, 3, {.padding = "SAME", .groups = 6}};
    case 3:
      return {{16, 10, 10}, 32, 3, {.padding = 1, .dilation = 2}};
    case 4:
      return {{7, 8, 16}, 8, 3, {.stride = 2, .padding = 1, .data_format = "NHWC"}};
    case 5:
      return {{1, 28, 28}, 20, 5, {}};
    default:
      return {{5, 12, 9}, 7, 3, {.padding = 1}, 14};
  }
}

TEST_P(ConvBackends, Agree) {
  const ConvCase c = conv_case(GetParam());
  const Variable x = layers::data("x", c.image);
  const Variable out = layers::conv2d(x, c.filters, c.size, c.options);
  const Variable loss = layers::mean(layers::square(out));
  x.set_stop_gradient(false);
  const auto pairs = append_backward(loss);
  std::vector<Fetch> fetch = {out, "x@GRAD"};
  for (const ParamGrad& pair : pairs) fetch.emplace_back(pair.grad);
  Shape batch{c.batch};
  for (const int64_t dim : c.image) batch.push_back(dim);
  Tensor fed(DType::kFloat32, batch);
  const Tensor source = random_tensor(batch, 31);
  for (int64_t i = 0; i < fed.numel(); ++i) {
    fed.data<float>()[i] = static_cast<float>(source.values<double>()[static_cast<size_t>(i)]);
  }
  const KernelTable reference = without_first(1);
  Executor fast;
  Executor plain(CPUPlace(), {.kernels = &reference});
  fast.run(startup_);
  plain.run(startup_);
  const auto got = fast.run(main_, {{"x", fed}}, fetch);
  const auto expected = plain.run(main_, {{"x", fed}}, fetch);
  const auto again = fast.run(main_, {{"x", fed}}, fetch);
  for (size_t k = 0; k < got.size(); ++k) {
    float scale = 0;
    float error = 0;
    for (int64_t i = 0; i < got[k].numel(); ++i) {
      const float a = got[k].data<float>()[i];
      const float b = expected[k].data<float>()[i];
      scale = std::max(scale, std::abs(b));
      error = std::max(error, std::abs(a - b));
      EXPECT_EQ(a, again[k].data<float>()[i]) << "other bits in another run";
    }
    EXPECT_LE(error, 2e-5f * scale) << fetch[k].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvBackends, testing::Range(0, 7));

class Pooling : public NetFixture, public testing::WithParamInterface<Shape> {};

// The kernels of the library; pool2d_grad finds its output full of sevens.
KernelTable with_dirty_gradients() {
  KernelTable table = KernelTable::standard();
  const Kernel kernel = table.find("pool2d_grad", DeviceKind::kCpu, DType::kFloat32).front();
  table.add_first(
      "pool2d_grad", DeviceKind::kCpu, DType::kFloat32,
      {.name = "dirty", .prepare = [kernel](PrepareContext& context) {
         std::shared_ptr<Prepared> prepared = kernel.prepare(context);
         return make_prepared([prepared, out = context.output("X@GRAD")](const KernelContext& c) {
           std::fill_n(c.out<float>(out), c.output(out).numel(), 7.0f);
           prepared->run(c);
         });
       }});
  return table;
}

TEST_P(Pooling, GivesNothingToWhatNoWindowSees) {
  const Shape& batch = GetParam();
  const Variable x = layers::data("x", batch, DType::kFloat32, {.append_batch_size = false});
  x.set_stop_gradient(false);
  const Variable out = layers::pool2d(x, {.pool_size = 2, .pool_type = "max", .pool_stride = 2});
  append_backward(layers::reduce_sum(out));
  Tensor fed(DType::kFloat32, batch);
  for (int64_t i = 0; i < fed.numel(); ++i) fed.data<float>()[i] = static_cast<float>(i);
  const KernelTable kernels = with_dirty_gradients();
  Executor executor(CPUPlace(), {.kernels = &kernels});
  const Tensor grad = executor.run(main_, {{"x", fed}}, {"x@GRAD"})[0];
  for (int64_t i = 0; i < grad.numel(); ++i) {
    const bool largest = i / batch[3] % batch[2] % 2 == 1 && i % batch[3] % 2 == 1;
    EXPECT_EQ(grad.data<float>()[i], largest ? 1.0f : 0.0f) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Images, Pooling,
                         testing::Values(Shape{2, 1, 4, 6}, Shape{2, 1, 5, 6}, Shape{2, 1, 4, 7},
                                         Shape{2, 2, 5, 7}));

class Dropout : public NetFixture {
 protected:
  Tensor ones(int64_t rows) {
    Tensor tensor(DType::kFloat32, {rows, 1000});
    std::fill_n(tensor.data<float>(), tensor.numel(), 1.0f);
    return tensor;
  }
};

TEST_F(Dropout, DropsTheShareAskedForAndScalesTheRest) {
  const Variable x = layers::data("x", {1000});
  const Variable down = layers::dropout(x, 0.3);
  const Variable up = layers::dropout(x, 0.3, {.dropout_implementation = "upscale_in_train"});
  Executor executor;
  const auto results = executor.run(main_, {{"x", ones(50)}}, {down, up});
  for (const auto& [result, kept] : {std::pair(results[0], 1.0f), {results[1], 1.0f / 0.7f}}) {
    int64_t zeros = 0;
    for (const float value : result.values<float>()) {
      if (value == 0) {
        ++zeros;
      } else {
        EXPECT_FLOAT_EQ(value, kept);
      }
    }
    EXPECT_NEAR(static_cast<double>(zeros) / 50000, 0.3, 0.01);
  }
}

TEST_F(Dropout, DrawsAnewInEveryStepAndTheSameInEveryRun) {
  main_.set_random_seed(17);
  const Variable out = layers::dropout(layers::data("x", {1000}), 0.5);
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    Executor executor;
    for (int step = 0; step < 2; ++step) {
      const Tensor result = executor.run(main_, {{"x", ones(2)}}, {out})[0];
      runs.emplace_back(result.values<float>().begin(), result.values<float>().end());
    }
  }
  EXPECT_EQ(runs[0], runs[2]);
  EXPECT_EQ(runs[1], runs[3]);
  EXPECT_NE(runs[0], runs[1]);
}

TEST_F(Dropout, OfATestProgramKeepsEverything) {
  const Variable x = layers::data("x", {1000});
  const Variable out = layers::dropout(x, 0.25);
  const Program test = main_.clone(true);
  const Tensor result = Executor().run(test, {{"x", ones(1)}}, {out})[0];
  for (const float value : result.values<float>()) EXPECT_FLOAT_EQ(value, 0.75f);
}

TEST_F(Dropout, OfOneSeedDropsTheSameElements) {
  layers::data("x", {1000});
  layers::data("seed", {1}, DType::kInt32, {.append_batch_size = false});
  std::vector<Fetch> outs;
  for (const char* name : {"first", "second"}) {
    for (const std::string& made : {std::string(name), str_cat(name, "_mask")}) {
      VarDesc var;
      var.name = made;
      block().add_var(var);
    }
    append_op(block(), {.type = "dropout",
                        .inputs = {{"X", {"x"}}, {"Seed", {"seed"}}},
                        .outputs = {{"Out", {name}}, {"Mask", {str_cat(name, "_mask")}}},
                        .attrs = {{"dropout_prob", 0.5}}});
    outs.emplace_back(name);
  }
  Executor executor;
  const auto run = [&](int32_t number) {
    const Tensor fed = Tensor::from(std::vector<int32_t>{number}, {1});
    const auto got = executor.run(main_, {{"x", ones(3)}, {"seed", fed}}, outs);
    std::vector<float> first(got[0].values<float>().begin(), got[0].values<float>().end());
    const std::vector<float> second(got[1].values<float>().begin(), got[1].values<float>().end());
    EXPECT_EQ(first, second);
    EXPECT_NEAR(static_cast<double>(std::count(first.begin(), first.end(), 0.0F)) / 3000, 0.5,
                0.05);
    return first;
  };
  const auto of_seven = run(7);
  EXPECT_NE(run(8), of_seven);
  EXPECT_EQ(run(7), of_seven);
}

using Rows = NetFixture;

// Rows 1 (taken twice), 3 and 5 of a table's gradient, clipped and scaled by numbers of the step.
TEST_F(Rows, AreClippedAndScaledByTensors) {
  const Variable ids = layers::data("ids", {1}, DType::kInt64);
  const Variable weights = layers::data("weights", {2});
  const Variable rows =
      layers::embedding(ids, {6, 2}, {.is_sparse = true, .param_attr = {.name = "table"}});
  append_backward(layers::reduce_sum(rows * weights));
  for (const char* name : {"low", "high", "factor"}) {
    layers::data(name, {1}, DType::kFloat32, {.append_batch_size = false});
  }
  for (const char* name : {"clipped", "scaled"}) {
    VarDesc var;
    var.name = name;
    var.persistable = true;
    block().add_var(var);
  }
  append_op(block(), {.type = "clip",
                      .inputs = {{"X", {"table@GRAD"}}, {"Min", {"low"}}, {"Max", {"high"}}},
                      .outputs = {{"Out", {"clipped"}}},
                      .attrs = {}});
  append_op(block(), {.type = "scale",
                      .inputs = {{"X", {"clipped"}}, {"ScaleTensor", {"factor"}}},
                      .outputs = {{"Out", {"scaled"}}},
                      .attrs = {}});
  Executor executor;
  executor.run(startup_);
  const auto number = [](float value) { return Tensor::from(std::vector<float>{value}, {1}); };
  for (const float bound : {2.0F, 5.0F}) {
    executor.run(main_,
                 {{"ids", Tensor::from(std::vector<int64_t>{5, 1, 3, 1}, {4, 1})},
                  {"weights", Tensor::from(std::vector<float>{1, -9, 2, 1, 9, 0, 1, 1}, {4, 2})},
                  {"low", number(-bound)},
                  {"high", number(bound)},
                  {"factor", number(3)}});
    const auto& scaled = std::get<SelectedRows>(*executor.scope().find("scaled"));
    EXPECT_EQ(scaled.height, 6);
    EXPECT_THAT(scaled.rows, ElementsAre(1, 3, 5));
    const float sum = bound == 2.0F ? 2.0F : 3.0F;  // 2 + 1, and then the bound
    EXPECT_THAT(scaled.value.values<float>(), ElementsAre(3 * sum, 6, 3 * bound, 0, 3, -3 * bound));
  }
}

TEST_F(Rows, OfSeveralLookupsAreSummedAndMerged) {
  const Variable a = layers::data("a", {1}, DType::kInt64);
  const Variable b = layers::data("b", {1}, DType::kInt64);
  const EmbeddingOptions options{.is_sparse = true, .param_attr = {.name = "table"}};
  const Variable sum =
      layers::embedding(a, {6, 2}, options) + layers::embedding(b, {6, 2}, options);
  append_backward(layers::reduce_sum(sum));
  VarDesc merged;
  merged.name = "merged";
  merged.persistable = true;
  block().add_var(merged);
  append_op(block(), {.type = "merge_selected_rows",
                      .inputs = {{"X", {"table@GRAD"}}},
                      .outputs = {{"Out", {"merged"}}},
                      .attrs = {}});
  Executor executor;
  executor.run(startup_);
  executor.run(main_, {{"a", Tensor::from(std::vector<int64_t>{5, 1}, {2, 1})},
                       {"b", Tensor::from(std::vector<int64_t>{1, 3}, {2, 1})}});
  const auto& rows = std::get<SelectedRows>(*executor.scope().find("merged"));
  EXPECT_EQ(rows.height, 6);
  EXPECT_THAT(rows.rows, ElementsAre(1, 3, 5));
  EXPECT_THAT(rows.value.values<float>(), ElementsAre(2, 2, 1, 1, 1, 1));
}

// The row of padding_idx is no input: its gradient is 0, as in the dense form.
TEST_F(Rows, OfPaddingHaveNoGradient) {
  const Variable ids = layers::data("ids", {1}, DType::kInt64);
  const Variable weights = layers::data("weights", {2});
  const Variable rows = layers::embedding(
      ids, {6, 2}, {.is_sparse = true, .padding_idx = 3, .param_attr = {.name = "table"}});
  append_backward(layers::reduce_sum(rows * weights));
  block().edit_var("table@GRAD").persistable = true;
  Executor executor;
  executor.run(startup_);
  executor.run(main_,
               {{"ids", Tensor::from(std::vector<int64_t>{3, 5, 3, 0}, {4, 1})},
                {"weights", Tensor::from(std::vector<float>{9, 8, 1, 2, 7, 6, 3, 4}, {4, 2})}});
  const auto& gradient = std::get<SelectedRows>(*executor.scope().find("table@GRAD"));
  EXPECT_THAT(gradient.rows, ElementsAre(3, 5, 3, 0));
  EXPECT_THAT(gradient.value.values<float>(), ElementsAre(0, 0, 1, 2, 0, 0, 3, 4));
}

// A table that two shards train: sparse gradients give the bits of dense ones.
TEST_F(Rows, OfShardsAreAveragedAsDenseGradientsAre) {
  std::vector<std::vector<float>> tables;
  for (const bool sparse : {false, true}) {
    Program main;
    Program startup;
    const ProgramGuard guard(main, startup);
    const unique_name::Guard names;
    const Variable ids = layers::data("ids", {1}, DType::kInt64);
    const Variable out =
        layers::embedding(ids, {7, 3}, {.is_sparse = sparse, .param_attr = {.name = "table"}});
    const Variable loss = layers::mean(layers::square(out));
    append_backward(loss);
    const Variable rate = layers::fill_constant({1}, DType::kFloat32, 0.1);
    Block& block = main.global_block();
    {
      const RoleGuard role(main, OpRole::kOptimize);
      append_op(block, {.type = "sgd",
                        .inputs = {{"Param", {"table"}},
                                   {"Grad", {"table@GRAD"}},
                                   {"LearningRate", {rate.name()}}},
                        .outputs = {{"ParamOut", {"table"}}},
                        .attrs = {}});
    }
    Executor executor(CPUPlace(), {.logical_shards = 4});
    executor.run(startup);
    const std::vector<int64_t> words = {0, 1, 1, 2, 5, 1, 0, 0, 6, 1, 2, 2};
    for (int step = 0; step < 3; ++step) {
      executor.run(main, {{"ids", Tensor::from(words, {12, 1})}});
    }
    const auto values = executor.scope().tensor("table").values<float>();
    tables.emplace_back(values.begin(), values.end());
  }
  EXPECT_EQ(tables[0], tables[1]);
}

TEST_F(Rows, OutsideOfTheTableAreRefusedByName) {
  const Variable ids = layers::data("words", {1}, DType::kInt64);
  const Variable out = layers::embedding(ids, {6, 2}, {.param_attr = {.name = "table"}});
  Executor executor;
  executor.run(startup_);
  try {
    executor.run(main_, {{"words", Tensor::from(std::vector<int64_t>{6}, {1, 1})}}, {out});
    FAIL() << "id 6 of a table of 6 rows went through";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("words"));
    EXPECT_THAT(error.what(), testing::HasSubstr("table"));
    EXPECT_THAT(error.what(), testing::HasSubstr("[0, 6)"));
  }
}

TEST(KernelsToPlaceOps, KnowTheDevicesKernelsInEveryBuild) {
  const KernelTable table = kernels_to_place_ops();
  EXPECT_TRUE(table.knows("mul", DeviceKind::kCuda));
  EXPECT_FALSE(table.find("mul", DeviceKind::kCuda, DType::kFloat32).empty());
  EXPECT_TRUE(table.find("mul", DeviceKind::kCuda, DType::kInt8).empty());
  EXPECT_FALSE(table.knows("sequence_conv", DeviceKind::kCuda));
  EXPECT_EQ(table.ops(DeviceKind::kCpu), KernelTable::standard().ops(DeviceKind::kCpu));
}

}  // namespace
}  // namespace fleet::fluid

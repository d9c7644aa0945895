// The nets of net_cases.h on a device: what has no CUDA kernel runs on the CPU, the rest on the
// device, and steps compute what they do on the CPU. Skipped where there is no device.
#include <algorithm>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "base/philox.h"
#include "fluid/backward/backward.h"
#include "fluid/kernels/op_places.h"
#include "fluid/layers/layers.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/fluid/kernels/cuda/device.h"
#include "tests/fluid/kernels/typed_net.h"
#ifdef FLEET_CUDA_ON_HOST
#include "tests/testing/cuda_on_host/stream.h"
#endif

namespace fleet::fluid {
namespace {

#ifdef FLEET_CUDA_ON_HOST
constexpr bool kCountsRuns = true;
using testing::recorded_runs;
#else
constexpr bool kCountsRuns = false;
uint64_t recorded_runs() {
  return 0;
}
#endif

class CudaNets : public ::testing::TestWithParam<NetCase> {};

TEST_P(CudaNets, ComputeWhatTheCpuDoes) {
  SKIP_WITHOUT_DEVICE();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(dtype_name(dtype));
    const double rtol = dtype == DType::kFloat32 ? 1e-4 : 1e-10;
    TypedNet cpu(GetParam(), dtype);
    TypedNet device(GetParam(), dtype, KernelTable::standard(), CUDAPlace(0));
    device.begin_as(cpu);
    for (int step = 0; step < 3; ++step) {
      const auto wanted = cpu.run(step);
      const auto got = device.run(step);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        expect_near(got[i], wanted[i], rtol, str_cat("step ", step, ", value ", i));
      }
    }
    const auto wanted = cpu.kept();
    for (const auto& [name, tensor] : device.kept()) {
      expect_near(tensor, wanted.at(name), rtol, name);
    }
  }
}

// In float32 and halves, so not among the nets of one type; with a table of rows, or without.
NetCase mixed_net(DType half, bool is_sparse) {
  return {"mixed", [=](DType) {
            const Variable x = layers::data("x", {4});
            const Variable words = layers::data("words", {1}, DType::kInt64);
            const Variable rows = layers::embedding(
                words, {5, 4}, {.is_sparse = is_sparse, .param_attr = {.name = "t"}});
            const Variable hidden =
                layers::fc(layers::elementwise_add(x, rows), 6, {.act = "relu"});
            const Variable loss = layers::mean(layers::square(layers::fc(hidden, 2)));
            optimizer::Momentum momentum({.learning_rate = 0.05});
            mixed_precision::decorate(momentum, {.dtype = half}).minimize(loss);
            return std::vector<Variable>{loss};
          }};
}

TEST(CudaMixedPrecision, ComputesWhatTheCpuDoes) {
  SKIP_WITHOUT_DEVICE();
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    for (const bool is_sparse : {false, true}) {
      const NetCase net = mixed_net(half, is_sparse);
      TypedNet cpu(net, DType::kFloat32);
      TypedNet device(net, DType::kFloat32, KernelTable::standard(), CUDAPlace(0));
      device.begin_as(cpu);
      const double rtol = half == DType::kFloat16 ? 2e-3 : 2e-2;
      for (int step = 0; step < 3; ++step) {
        const auto wanted = cpu.run(step);
        const auto got = device.run(step);
        expect_near(got[0], wanted[0], rtol, str_cat(dtype_name(half), " ", is_sparse));
      }
      const auto wanted = cpu.kept();
      for (const auto& [name, tensor] : device.kept()) {
        if (tensor.dtype() == DType::kFloat32) expect_near(tensor, wanted.at(name), rtol, name);
      }
    }
  }
}

// As float32, and what the sum of their squares has as gradients.
std::vector<Variable> with_gradients(const std::vector<Variable>& halves) {
  std::vector<Variable> results;
  Variable sum;
  for (const Variable& made : halves) {
    results.push_back(layers::cast(made, DType::kFloat32));
    const Variable part = layers::reduce_sum(layers::square(results.back()));
    sum = sum ? sum + part : part;
  }
  for (const auto& [param, grad] : append_backward(sum)) results.push_back(grad);
  return results;
}

// Matrices, batches of them, and one that all of a batch are multiplied with, whose gradient is a
// sum over the batch.
NetCase products_of(DType half) {
  return {"products", [half](DType) {
            const auto of = [half](const char* name, const Shape& shape) {
              const Variable floats =
                  layers::create_parameter(shape, DType::kFloat32, {.name = name});
              return layers::cast(floats, half);
            };
            const Variable x = of("x", {6, 5, 4});
            const Variable turned = of("turned", {6, 3, 4});
            const Variable shared = of("shared", {4, 7});
            const Variable flat = layers::mul(x, shared, {.x_num_col_dims = 2});
            const Variable batch = layers::matmul(x, turned, {.transpose_y = true, .alpha = 0.5});
            const Variable all = layers::matmul(x, shared);
            return with_gradients({flat, batch, all});
          }};
}

// Functions of elements, also of broadcast ones, whose gradients are sums; and moves.
NetCase elements_of(DType half) {
  return {"elements", [half](DType) {
            const auto of = [half](const char* name, const Shape& shape) {
              const Variable floats =
                  layers::create_parameter(shape, DType::kFloat32, {.name = name});
              return layers::cast(floats, half);
            };
            const Variable x = of("x", {6, 4, 5});
            const Variable y = of("y", {6, 4, 5});
            const Variable row = of("row", {5});
            const Variable channel = of("channel", {4});
            Variable made = layers::elementwise_add(layers::relu(x), row);
            made = layers::elementwise_mul(made, layers::tanh(y));
            made = layers::elementwise_sub(made, channel, {.axis = 1});
            made = layers::elementwise_max(layers::gelu(made), layers::sigmoid(y));
            made = layers::elementwise_div(made, layers::exp(y));
            made = layers::reshape(layers::transpose(made, {0, 2, 1}), {6, 20});
            made = layers::concat({made, layers::reshape(y, {6, 20})}, 1);
            made = layers::slice(made, {1}, {3}, {33});
            const Variable wide = layers::cast(made, DType::kFloat32);
            const Variable loss = layers::mean(layers::square(wide));
            std::vector<Variable> results = {wide};
            for (const auto& [param, grad] : append_backward(loss)) results.push_back(grad);
            return results;
          }};
}

// Pooled and dropped images.
NetCase images_of(DType half) {
  return {"images", [half](DType) {
            const Variable floats =
                layers::create_parameter({6, 4, 5, 5}, DType::kFloat32, {.name = "x"});
            const Variable x = layers::cast(floats, half);
            Variable made =
                layers::pool2d(x, {.pool_size = {2, 2}, .pool_type = "max", .pool_stride = {2, 2}});
            made = layers::dropout(made, 0.3);
            const Variable average =
                layers::pool2d(x, {.pool_size = {3, 3}, .pool_type = "avg", .pool_stride = {2, 2}});
            made = layers::elementwise_add(made, average);
            const Variable wide = layers::cast(made, DType::kFloat32);
            const Variable loss = layers::mean(layers::square(wide));
            std::vector<Variable> results = {wide};
            for (const auto& [param, grad] : append_backward(loss)) results.push_back(grad);
            return results;
          }};
}

// With groups, paddings that differ from side to side, and channels behind the image.
NetCase convolutions_of(DType half) {
  return {
      "convolutions", [half](DType) {
        const Variable floats =
            layers::create_parameter({6, 8, 9, 9}, DType::kFloat32, {.name = "x"});
        const Variable x = layers::cast(floats, half);
        const ParamAttr none = {.omit = true};
        return with_gradients(
            {layers::conv2d(x, 16, 3, {.padding = 1, .groups = 2, .bias_attr = none}),
             layers::conv2d(
                 x, 8, {3, 2},
                 {.stride = 2, .padding = {1, 0, 2, 1}, .dilation = {1, 2}, .bias_attr = none}),
             layers::conv2d(x, 8, 3, {.groups = 8, .bias_attr = none, .use_cudnn = false}),
             layers::conv2d(layers::transpose(x, {0, 2, 3, 1}), 6, 3,
                            {.bias_attr = none, .data_format = "NHWC"}),
             layers::conv2d_transpose(x, 4, {.filter_size = 3, .stride = 2, .bias_attr = none}),
             layers::conv2d_transpose(
                 x, 8, {.filter_size = 2, .groups = 8, .bias_attr = none, .use_cudnn = false})});
      }};
}

// Under decorate, with statistics of float32.
TEST(CudaMixedPrecision, NormalisesAsTheCpuDoes) {
  SKIP_WITHOUT_DEVICE();
  const NetCase net = {"normalised", [](DType) {
                         const Variable x = layers::data("x", {4});
                         const Variable image = layers::reshape(layers::fc(x, 12), {-1, 3, 2, 2});
                         const Variable normed = layers::batch_norm(image, {.act = "relu"});
                         const Variable loss = layers::mean(
                             layers::square(layers::fc(layers::reshape(normed, {-1, 12}), 2)));
                         optimizer::Momentum momentum({.learning_rate = 0.05});
                         mixed_precision::decorate(momentum).minimize(loss);
                         return std::vector<Variable>{loss};
                       }};
  TypedNet cpu(net, DType::kFloat32);
  TypedNet device(net, DType::kFloat32, KernelTable::standard(), CUDAPlace(0));
  device.begin_as(cpu);
  for (int step = 0; step < 3; ++step) {
    expect_near(device.run(step)[0], cpu.run(step)[0], 5e-3, str_cat("step ", step));
  }
  const auto wanted = cpu.kept();
  for (const auto& [name, tensor] : device.kept()) {
    if (tensor.dtype() == DType::kFloat32) expect_near(tensor, wanted.at(name), 1e-2, name);
  }
}

void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted,
                      const std::string& name) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), wanted[i].shape());
    EXPECT_EQ(std::memcmp(got[i].raw(), wanted[i].raw(), got[i].bytes()), 0)
        << name << ", value " << i;
  }
}

// Each value is rounded once; sums of another order differ where they are near the middle.
void expect_halves_of_the_cpu(NetCase (*net)(DType half)) {
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    TypedNet cpu(net(half), DType::kFloat32);
    TypedNet device(net(half), DType::kFloat32, KernelTable::standard(), CUDAPlace(0));
    TypedNet again(net(half), DType::kFloat32, KernelTable::standard(), CUDAPlace(0));
    device.begin_as(cpu);
    again.begin_as(cpu);
    const auto wanted = cpu.run(0);
    const auto got = device.run(0);
    expect_same_bits(again.run(0), got, std::string(dtype_name(half)));
    ASSERT_GE(got.size(), 2u);
    const double rtol = half == DType::kFloat16 ? 2e-3 : 2e-2;
    for (size_t i = 0; i < got.size(); ++i) {
      expect_near(got[i], wanted[i], rtol, str_cat(dtype_name(half), " ", i));
    }
  }
}

TEST(CudaHalves, ProductsAreThoseOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  expect_halves_of_the_cpu(products_of);
}

TEST(CudaHalves, ElementsAreThoseOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  expect_halves_of_the_cpu(elements_of);
}

TEST(CudaHalves, ImagesAreThoseOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  expect_halves_of_the_cpu(images_of);
}

TEST(CudaHalves, ConvolutionsAreThoseOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  expect_halves_of_the_cpu(convolutions_of);
}

// Batches of two sizes: a step is recorded for the first, for the second, and for the first again.
TEST_P(CudaNets, HaveTheSameBitsWhenStepsAreRecorded) {
  SKIP_WITHOUT_DEVICE();
  const uint64_t before = recorded_runs();
  TypedNet plain(GetParam(), DType::kFloat32, KernelTable::standard(), CUDAPlace(0));
  TypedNet recorded(GetParam(), DType::kFloat32, KernelTable::standard(), CUDAPlace(0), true);
  recorded.begin_as(plain);
  for (int step = 0; step < 18; ++step) {
    const int64_t rows = step / 6 == 1 ? 4 : 6;
    const std::vector<int64_t> offsets = {0, 2, rows};
    const auto wanted = plain.run(step, rows, offsets);
    const auto got = recorded.run(step, rows, offsets);
    expect_same_bits(got, wanted, str_cat("step ", step));
  }
  // Of each six steps, those that come after two alike.
  if (kCountsRuns && GetParam().name == "momentum_dense") {
    EXPECT_GE(recorded_runs() - before, 9U);
  }
}

// Sparse gradients of sampled classes have no kernels there.
TEST(CudaPlaces, NetsWithUpdatesAreWholeOnTheDevice) {
  int nets = 0;
  for (const NetCase& net : net_cases()) {
    const bool updates = net.name.ends_with("_rows") || net.name.ends_with("_dense") ||
                         net.name == "averages" || net.name == "lookahead";
    if (!updates || net.name == "many_classes_rows") continue;
    SCOPED_TRACE(net.name);
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    net.build(DType::kFloat32);
    const Block& block = main.global_block();
    const OpPlaces places(block, KernelTable::standard(), CUDAPlace(0), {.tables_here = true});
    for (const auto& op : block.ops()) {
      EXPECT_EQ(places.of(block, *op), CUDAPlace(0)) << op->to_string();
    }
    ++nets;
  }
  EXPECT_GT(nets, 30);
}

// A table of 5 rows, looked up with sparse gradients and updated.
class CudaRows : public ::testing::Test {
 protected:
  CudaRows() {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    const auto words = layers::data("words", {1}, DType::kInt64);
    const auto h =
        layers::embedding(words, {5, 4}, {.is_sparse = true, .param_attr = {.name = "t"}});
    loss_ = layers::reduce_sum(layers::square(h)).name();
    optimizer::Adagrad({.learning_rate = 0.1, .grad_clip = clip::GradientClipByGlobalNorm(0.5)})
        .minimize(Variable(main_.global_block(), main_.global_block().var(loss_)));
  }

  Tensor table_after(Executor& executor, const std::vector<int64_t>& words) {
    const auto rows = static_cast<int64_t>(words.size());
    executor.run(main_, {{"words", Tensor::from(words, {rows, 1})}}, {loss_});
    return executor.scope().tensor("t").copy_to(CPUPlace());
  }

  Program main_;
  Program startup_;
  std::string loss_;
};

TEST_F(CudaRows, MayBeNone) {
  SKIP_WITHOUT_DEVICE();
  Executor device(CUDAPlace(0));
  device.run(startup_);
  const Tensor before = device.scope().tensor("t").copy_to(CPUPlace());
  EXPECT_EQ(table_after(device, {}).to_string(100), before.to_string(100));
  EXPECT_NE(table_after(device, {4, 4, 0}).to_string(100), before.to_string(100));
}

TEST_F(CudaRows, AnIdOutsideOfTheTableIsNamed) {
  SKIP_WITHOUT_DEVICE();
  Executor device(CUDAPlace(0));
  device.run(startup_);
  try {
    table_after(device, {1, 5});
    FAIL() << "id 5 of a table of 5 rows";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("[0, 5)"), std::string::npos) << error.what();
  }
}

class Findings final : public FiniteWatch {
 public:
  void on_nonfinite(const Nonfinite& found) override { all.push_back(found); }
  std::vector<Nonfinite> all;
};

TEST_F(CudaRows, ThatMakeAParameterInfiniteAreTold) {
  SKIP_WITHOUT_DEVICE();
  Executor device(CUDAPlace(0));
  device.run(startup_);
  Findings findings;
  device.set_finite_watch(&findings);
  table_after(device, {3, 1, 3});
  EXPECT_TRUE(findings.all.empty());
  Tensor large(DType::kFloat32, {5, 4});
  for (int64_t i = 0; i < large.numel(); ++i) large.data<float>()[i] = i == 6 ? 3e38F : 0.1F;
  std::get<Tensor>(*device.scope().find("t")).copy_from(large);
  table_after(device, {3, 1, 3});
  const auto told = [](const Nonfinite& found) {
    return found.what == Nonfinite::What::kParameter && found.variable == "t";
  };
  EXPECT_EQ(std::count_if(findings.all.begin(), findings.all.end(), told), 1);
}

// More rows than a block has threads, most of them several times.
TEST_F(CudaRows, ManyOfThemHaveTheBitsOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const auto words = layers::data("words", {1}, DType::kInt64);
  const auto h =
      layers::embedding(words, {300, 7}, {.is_sparse = true, .param_attr = {.name = "many"}});
  optimizer::SGD({.learning_rate = 0.1}).minimize(layers::reduce_sum(h * h));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 2000; ++i) ids.push_back(i * i % 271);
  std::vector<std::string> tables;
  for (const Place& place : {CPUPlace(), CUDAPlace(0), CUDAPlace(0)}) {
    Executor executor(place);
    executor.run(startup);
    executor.run(main, {{"words", Tensor::from(ids, {2000, 1})}});
    tables.push_back(executor.scope().tensor("many").to_string(300 * 7));
  }
  EXPECT_EQ(tables[1], tables[0]);
  EXPECT_EQ(tables[2], tables[1]);
}

// A net of sequences, its result and the gradient of the numbers, on both places.
void expect_same_on_the_device(const std::function<Variable(const Variable& x)>& net,
                               const Tensor& x) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const auto data = layers::data("x", {x.shape()[1]}, DType::kFloat64, {.lod_level = 1});
  data.set_stop_gradient(false);
  const auto out = net(data);
  const auto loss = layers::reduce_sum(layers::square(out) + out);
  const auto grad = gradients({loss}, {data}).front();
  Executor cpu;
  Executor device(CUDAPlace(0), {.strict_place = true});
  const auto wanted = cpu.run(main, {{"x", x}}, {out, grad});
  const auto got = device.run(main, {{"x", x}}, {out, grad});
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].lod(), wanted[i].lod());
    expect_near(got[i], wanted[i], 1e-13, str_cat("result ", i));
  }
}

Tensor sequences_of(const std::vector<int64_t>& offsets, int64_t width = 3) {
  Tensor x(DType::kFloat64, {offsets.back(), width});
  const RandomKey key = RandomKey::of(3, "sequences");
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<double>()[i] = 2 * uniform_double(key, static_cast<uint64_t>(i)) - 1;
  }
  x.set_lod({offsets});
  return x;
}

const std::vector<std::vector<int64_t>> kOffsets = {
    {0, 2, 2, 5, 6, 6}, {0, 0}, {0, 700, 701, 1200}};

TEST(CudaSequences, ArePooledAlsoWhenEmpty) {
  SKIP_WITHOUT_DEVICE();
  for (const auto& offsets : kOffsets) {
    for (const char* type : {"sum", "average", "sqrt", "max", "first", "last"}) {
      SCOPED_TRACE(str_cat(type, ", ", offsets.size() - 1, " sequences"));
      const auto net = [type](const Variable& x) {
        return layers::sequence_pool(x, type, {.pad_value = 0.25});
      };
      expect_same_on_the_device(net, sequences_of(offsets));
    }
  }
}

TEST(CudaSequences, HaveTheSharesOfASoftmax) {
  SKIP_WITHOUT_DEVICE();
  for (const auto& offsets : kOffsets) {
    const auto net = [](const Variable& x) { return layers::sequence_softmax(x); };
    expect_same_on_the_device(net, sequences_of(offsets, 1));
  }
}

TEST(CudaSequences, AreJoinedAndReversed) {
  SKIP_WITHOUT_DEVICE();
  for (const auto& offsets : kOffsets) {
    const auto net = [](const Variable& x) {
      return layers::sequence_concat({x, layers::sequence_reverse(x), x * 2.0});
    };
    expect_same_on_the_device(net, sequences_of(offsets));
  }
}

TEST(CudaSequences, AreRepeated) {
  SKIP_WITHOUT_DEVICE();
  for (const auto& offsets : kOffsets) {
    const auto rows = [](const Variable& x) {
      return layers::sequence_expand(layers::sequence_pool(x, "sum"), x);
    };
    expect_same_on_the_device(rows, sequences_of(offsets));
    const auto whole = [](const Variable& x) { return layers::sequence_expand(x, x); };
    expect_same_on_the_device(whole, sequences_of(offsets));
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaNets, ::testing::ValuesIn(net_cases()),
                         [](const auto& net) { return net.param.name; });

}  // namespace
}  // namespace fleet::fluid

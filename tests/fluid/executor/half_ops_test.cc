// Programs with variables of 16 bits: ops that have no kernel for them run by those for float32.

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/numbers/half.h"
#include "fluid/executor/executor.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/device/emulated_device.h"

namespace fleet::fluid {
namespace {

std::vector<float> rounded(std::vector<float> values, DType half) {
  std::vector<uint16_t> words(values.size());
  (half == DType::kFloat16 ? &float16_of_float : &bfloat16_of_float)(values.data(), words.data(),
                                                                     values.size());
  (half == DType::kFloat16 ? &float_of_float16 : &float_of_bfloat16)(words.data(), values.data(),
                                                                     values.size());
  return values;
}

Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  Tensor tensor(DType::kFloat32, shape);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

std::vector<float> floats(const Tensor& tensor) {
  Tensor wide = tensor;
  if (is_half(tensor.dtype())) {
    wide = Tensor(DType::kFloat32, tensor.shape());
    convert_half(tensor, wide, nullptr);
  }
  return {wide.data<float>(), wide.data<float>() + wide.numel()};
}

// None of them is a number of 16 bits.
std::vector<float> thirds(int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i % 11 - 5) / 3.0F);
  return values;
}

class HalfOps : public ::testing::TestWithParam<DType> {
 protected:
  HalfOps() : programs_(main_, startup_) {}

  // x [4, 8] times a parameter [8, 4]; in halves, or in float32 throughout.
  Variable net(bool halves) {
    const Variable x = layers::data("x", {8});
    const Variable w = layers::create_parameter({8, 4}, DType::kFloat32, {.name = "w"});
    const auto in_half = [&](const Variable& v) {
      return halves ? layers::cast(v, GetParam()) : v;
    };
    const Variable out = layers::tanh(layers::mul(in_half(x), in_half(w)));
    return layers::mean(halves ? layers::cast(out, DType::kFloat32) : out);
  }

  Program main_;
  Program startup_;
  ProgramGuard programs_;
  unique_name::Guard names_;
};

TEST_P(HalfOps, CastRoundsToNearestEven) {
  const Variable x = layers::data("x", {5});
  const Variable half = layers::cast(x, GetParam());
  const Variable back = layers::cast(half, DType::kFloat32);
  const Variable whole = layers::cast(half, DType::kInt32);
  const std::vector<float> values = {1.0F / 3, 1 + 0x1p-11F, 1 + 3 * 0x1p-11F, 1 + 0x1p-8F, -7.0F};
  Executor executor;
  const auto got = executor.run(main_, {{"x", tensor_of(values, {1, 5})}}, {half, back, whole});
  EXPECT_EQ(got[0].dtype(), GetParam());
  EXPECT_EQ(floats(got[0]), rounded(values, GetParam()));
  EXPECT_EQ(floats(got[1]), rounded(values, GetParam()));
  EXPECT_EQ(got[2].data<int32_t>()[4], -7);
}

TEST_P(HalfOps, OtherTypesAreCastByWayOfFloats) {
  const Variable x = layers::data("x", {3}, DType::kInt64);
  const Variable half = layers::cast(x, GetParam());
  Tensor fed(DType::kInt64, {1, 3});
  const std::vector<int64_t> values = {3, -1000, 70000};
  std::copy(values.begin(), values.end(), fed.data<int64_t>());
  Executor executor;
  EXPECT_EQ(floats(executor.run(main_, {{"x", fed}}, {half})[0]),
            rounded({3, -1000, 70000}, GetParam()));
}

TEST_P(HalfOps, AnOpRunsInFloatsAndItsResultIsRounded) {
  const Variable x = layers::data("x", {6});
  const Variable half = layers::cast(x, GetParam());
  const Variable made = layers::exp(half);
  const Variable moved = layers::reshape(made, {3, -1});
  Executor executor;
  const auto got = executor.run(main_, {{"x", tensor_of(thirds(6), {1, 6})}}, {made, moved});
  std::vector<float> expected = rounded(thirds(6), GetParam());
  Program reference;
  Program none;
  const ProgramGuard programs(reference, none);
  const Variable plain = layers::exp(layers::data("x", {6}));
  const auto wide = executor.run(reference, {{"x", tensor_of(expected, {1, 6})}}, {plain});
  EXPECT_EQ(floats(got[0]), rounded(floats(wide[0]), GetParam()));
  EXPECT_EQ(got[1].dtype(), GetParam());
  EXPECT_EQ(floats(got[1]), floats(got[0]));
}

TEST_P(HalfOps, AValueThatIsUpdatedIsOneForItsKernel) {
  KernelTable table = KernelTable::standard();
  // Reads only what it writes, as updates by selected rows do.
  table.add_first(
      "increment", DeviceKind::kCpu, DType::kFloat32,
      {.name = "own", .prepare = [](PrepareContext& context) {
         const int out = context.set_output("Out", context.in("X").shape, DType::kFloat32);
         return make_prepared([out](const KernelContext& c) { *c.out<float>(out) += 2; });
       }});
  const Variable x = layers::fill_constant({1}, GetParam(), 0.5);
  layers::increment(x);
  layers::increment(x);
  Executor plain;
  Executor own(CPUPlace(), {.kernels = &table});
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(floats(plain.run(main_, {}, {x})[0]), std::vector<float>{2.5F});
    EXPECT_EQ(floats(own.run(main_, {}, {x})[0]), std::vector<float>{4.5F});
  }
}

TEST_P(HalfOps, AnOverflowOfAHalfIsFound) {
  const Variable x = layers::fill_constant({2}, GetParam(), 300);
  const Variable y = layers::elementwise_mul(x, x);
  const Variable finite = layers::isfinite(y);
  Executor executor;
  const bool expected = GetParam() == DType::kBFloat16;
  EXPECT_EQ(executor.run(main_, {}, {finite})[0].data<bool>()[0], expected);
}

TEST_P(HalfOps, GradientsOfAMasterWeightAreThoseOfItsHalf) {
  const Variable loss = net(true);
  optimizer::SGD({.learning_rate = 0.5}).minimize(loss);
  Executor executor;
  executor.run(startup_);
  const Tensor before = executor.scope().tensor("w").clone();
  const Feed feed = {{"x", tensor_of(thirds(32), {4, 8})}};
  const Tensor grad = executor.run(main_, feed, {"w@GRAD"})[0];
  const Tensor& after = executor.scope().tensor("w");
  ASSERT_EQ(grad.dtype(), DType::kFloat32);
  ASSERT_EQ(after.dtype(), DType::kFloat32);
  EXPECT_EQ(floats(grad), rounded(floats(grad), GetParam()));
  bool moved = false;
  for (int64_t i = 0; i < grad.numel(); ++i) {
    EXPECT_EQ(after.data<float>()[i], before.data<float>()[i] - 0.5F * grad.data<float>()[i]);
    moved = moved || grad.data<float>()[i] != 0;
  }
  EXPECT_TRUE(moved);
}

TEST_P(HalfOps, ATrainedNetIsNearTheOneOfFloats) {
  const auto trained = [this](bool halves) {
    Program main;
    Program startup;
    main.set_random_seed(3);
    startup.set_random_seed(3);
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable loss = net(halves);
    optimizer::SGD({.learning_rate = 0.5}).minimize(loss);
    Executor executor;
    executor.run(startup);
    float last = 0;
    for (int step = 0; step < 20; ++step) {
      last = executor.run(main, {{"x", tensor_of(thirds(32), {4, 8})}}, {loss})[0].data<float>()[0];
    }
    return last;
  };
  EXPECT_NEAR(trained(true), trained(false), 0.05);
  EXPECT_LT(trained(true), -0.5);
}

TEST_P(HalfOps, AKernelForHalvesComesFirst) {
  KernelTable table = KernelTable::standard();
  table.add_first("relu", DeviceKind::kCpu, GetParam(),
                  {.name = "own", .prepare = [](PrepareContext& context) {
                     const ValueSpec& x = context.in("X");
                     const int out = context.set_output("Out", x.shape, x.dtype);
                     return make_prepared([out](const KernelContext& c) {
                       std::memset(c.output(out).raw(), 0, c.output(out).bytes());
                     });
                   }});
  const Variable y = layers::relu(layers::fill_constant({2}, GetParam(), 3));
  Executor plain;
  Executor own(CPUPlace(), {.kernels = &table});
  EXPECT_EQ(floats(plain.run(main_, {}, {y})[0]), (std::vector<float>{3, 3}));
  EXPECT_EQ(floats(own.run(main_, {}, {y})[0]), (std::vector<float>{0, 0}));
}

TEST_P(HalfOps, TypesAreNotMixedWithinAnOp) {
  const Variable wide = layers::fill_constant({4}, DType::kFloat32, 1);
  const Variable half = layers::fill_constant({4}, GetParam(), 1);
  EXPECT_THROW(layers::elementwise_add(wide, half), Error);
  EXPECT_THROW(layers::elementwise_add(half, wide), Error);
}

TEST_P(HalfOps, SelectedRowsAreRefused) {
  const Variable ids = layers::data("ids", {1}, DType::kInt64);
  const Variable rows = layers::embedding(ids, {5, 2}, {.is_sparse = true, .dtype = GetParam()});
  const Variable loss = layers::mean(layers::cast(rows, DType::kFloat32));
  optimizer::SGD({.learning_rate = 0.5}).minimize(loss);
  Executor executor;
  executor.run(startup_);
  Tensor fed(DType::kInt64, {2, 1});
  std::fill_n(fed.data<int64_t>(), 2, 1);
  try {
    executor.run(main_, {{"ids", fed}}, {loss});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotSupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(dtype_name(GetParam()))));
  }
}

TEST_P(HalfOps, ADeviceWithoutKernelsForThemGivesTheBitsOfTheCpu) {
  testing::emulate_two_devices();
  const KernelTable table =
      testing::kernels_with_device_ops([](const std::string&) { return true; });
  const Variable loss = net(true);
  optimizer::SGD({.learning_rate = 0.5}).minimize(loss);
  Executor cpu;
  Executor device(CUDAPlace(0), {.kernels = &table});
  cpu.run(startup_);
  device.run(startup_);
  const Feed feed = {{"x", tensor_of(thirds(32), {4, 8})}};
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(floats(device.run(main_, feed, {loss})[0]), floats(cpu.run(main_, feed, {loss})[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfOps, ::testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& tested) { return std::string(dtype_name(tested.param)); });

}  // namespace
}  // namespace fleet::fluid

// Ops of 16-bit floats: what they compute is that of float32, of widened inputs, rounded once.
#include "fluid/kernels/half/widened.h"

#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "base/numbers/half.h"
#include "fluid/executor/executor.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/layers/layers.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

std::vector<float> floats_of(const Tensor& tensor) {
  Tensor wide = tensor;
  if (is_half(tensor.dtype())) {
    wide = Tensor(DType::kFloat32, tensor.shape());
    convert_half(tensor, wide, nullptr);
  }
  const float* begin = wide.data<float>();
  return {begin, begin + wide.numel()};
}

Tensor halves(DType dtype, const Shape& shape, const std::vector<float>& values) {
  Tensor wide(DType::kFloat32, shape);
  std::copy(values.begin(), values.end(), wide.data<float>());
  Tensor result(dtype, shape);
  convert_half(wide, result, nullptr);
  return result;
}

class Widened : public NetFixture, public testing::WithParamInterface<DType> {};

TEST_P(Widened, AreThoseOfFloat32RoundedOnce) {
  const DType half = GetParam();
  const Variable x = layers::data("x", {3}, half);
  const Variable y = layers::data("y", {3}, half);
  const Variable sum = layers::elementwise_add(x, y);
  const Variable square = layers::square(sum);
  const Variable wide = layers::cast(square, DType::kFloat32);
  const Variable again = layers::cast(wide, half);
  EXPECT_EQ(sum.dtype(), half);
  Executor executor;
  const Tensor a = halves(half, {2, 3}, {1, 2, 3, 0.1F, 300, -7});
  const Tensor b = halves(half, {2, 3}, {0.001F, 0.5F, 1e-3F, 0.2F, 0.25F, 1e-4F});
  const auto results = executor.run(main_, {{"x", a}, {"y", b}}, {sum, square, wide, again});
  const auto as = floats_of(a);
  const auto bs = floats_of(b);
  std::vector<float> sums;
  for (size_t i = 0; i < as.size(); ++i) sums.push_back(as[i] + bs[i]);
  EXPECT_EQ(results[0].dtype(), half);
  EXPECT_EQ(floats_of(results[0]), floats_of(halves(half, {2, 3}, sums)));
  std::vector<float> squares = floats_of(results[0]);
  for (float& value : squares) value *= value;
  EXPECT_EQ(floats_of(results[1]), floats_of(halves(half, {2, 3}, squares)));
  EXPECT_EQ(results[2].dtype(), DType::kFloat32);
  EXPECT_EQ(floats_of(results[2]), floats_of(results[1]));
  EXPECT_EQ(floats_of(results[3]), floats_of(results[1]));
}

TEST_P(Widened, OfOtherTypesAreCast) {
  const DType half = GetParam();
  const Variable x = layers::data("x", {4}, DType::kInt64);
  const Variable cast = layers::cast(x, half);
  const Variable back = layers::cast(cast, DType::kInt64);
  Executor executor;
  Tensor given(DType::kInt64, {1, 4});
  for (int64_t i = 0; i < 4; ++i) given.data<int64_t>()[i] = 5 - 3 * i;
  const auto results = executor.run(main_, {{"x", given}}, {cast, back});
  EXPECT_EQ(floats_of(results[0]), (std::vector<float>{5, 2, -1, -4}));
  EXPECT_EQ(results[1].data<int64_t>()[3], -4);
}

// Kernels with one of square in front that copies, or throws `thrown`, and counts its runs.
KernelTable with_own_square(DType half, std::optional<ErrorCode> thrown, int& runs) {
  const auto prepare = [=, &runs](PrepareContext& context) {
    const int x = context.input("X");
    const int out = context.set_output("Out", context.in("X").shape, half);
    return make_prepared([=, &runs](const KernelContext& c) {
      ++runs;
      if (thrown) throw_error(*thrown, {.what = "not this one"});
      std::copy_n(c.input(x).raw(), c.input(x).bytes(), c.output(out).raw());
    });
  };
  KernelTable table = KernelTable::standard();
  const Kernel& floats = table.find("square", DeviceKind::kCpu, DType::kFloat32).front();
  table.add_first("square", DeviceKind::kCpu, half,
                  or_widened({.name = "own", .prepare = prepare}, floats));
  return table;
}

TEST_P(Widened, TakesWhatAnOwnKernelDoesNot) {
  const DType half = GetParam();
  const Variable x = layers::data("x", {2}, half);
  const Variable square = layers::square(x);
  const Feed feed = {{"x", halves(half, {1, 2}, {3, -2})}};
  struct Case {
    std::optional<ErrorCode> thrown;
    std::vector<float> made;
    int runs;  // of the own kernel, in two steps
  };
  for (const Case& c : {Case{{}, {3, -2}, 2}, Case{ErrorCode::kNotSupported, {9, 4}, 1}}) {
    int runs = 0;
    const KernelTable table = with_own_square(half, c.thrown, runs);
    Executor executor(CPUPlace(), {.kernels = &table});
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(floats_of(executor.run(main_, feed, {square})[0]), c.made);
    }
    EXPECT_EQ(runs, c.runs);
  }
  int runs = 0;
  const KernelTable table = with_own_square(half, ErrorCode::kInternal, runs);
  Executor executor(CPUPlace(), {.kernels = &table});
  EXPECT_THROW(executor.run(main_, feed, {square}), Error);
}

INSTANTIATE_TEST_SUITE_P(Both, Widened, testing::Values(DType::kFloat16, DType::kBFloat16),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

TEST(HalfKernels, AreThoseOfFloat32AndACastOfTheirOwn) {
  const KernelTable& table = KernelTable::standard();
  for (const std::string& op : table.ops(DeviceKind::kCpu)) {
    const auto wide = table.find(op, DeviceKind::kCpu, DType::kFloat32);
    const size_t own = op == "cast" ? 1 : 0;
    EXPECT_EQ(table.find(op, DeviceKind::kCpu, DType::kFloat16).size(), wide.size() + own) << op;
  }
}

}  // namespace
}  // namespace fleet::fluid

#include "tools/inspect/tensor_values.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

namespace fleet::inspect {
namespace {

using fluid::DType;
using fluid::Tensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor sixteen_bits(DType dtype, const std::vector<uint16_t>& words) {
  Tensor tensor(dtype, {static_cast<int64_t>(words.size())});
  std::memcpy(tensor.raw(), words.data(), tensor.bytes());
  return tensor;
}

TEST(TensorValues, AreSummarized) {
  const auto expect = [](const Tensor& tensor, const ValueSummary& wanted) {
    const ValueSummary got = summarize(tensor);
    EXPECT_DOUBLE_EQ(got.norm, wanted.norm);
    EXPECT_EQ(got.least, wanted.least);
    EXPECT_EQ(got.most, wanted.most);
    EXPECT_EQ(got.nonfinite, wanted.nonfinite);
  };
  expect(Tensor::from<float>({3, -4}, {2}), {5, -4, 3, 0});
  expect(Tensor::from<float>({kNan, 3, kInfinity, 4, -kInfinity}, {5}), {5, 3, 4, 3});
  expect(Tensor::from<float>({kNan}, {1}), {0, 0, 0, 1});
  expect(Tensor::from<double>({}, {0, 3}), {0, 0, 0, 0});
  expect(Tensor::from<double>({1e200, -1e200}, {2}), {std::sqrt(2.0) * 1e200, -1e200, 1e200, 0});
  expect(Tensor::from<bool>({true, false, true}, {3}), {std::sqrt(2.0), 0, 1, 0});
  expect(Tensor::from<int8_t>({-128, 0}, {2}), {128, -128, 0, 0});
  expect(Tensor::from<int16_t>({-7}, {1}), {7, -7, -7, 0});
  expect(Tensor::from<int32_t>({-7, -9}, {2}), {std::sqrt(130.0), -9, -7, 0});
  expect(Tensor::from<uint8_t>({255}, {1}), {255, 255, 255, 0});
  expect(sixteen_bits(DType::kFloat16, {0x3C00, 0xC000, 0x7C00}), {std::sqrt(5.0), -2, 1, 1});
  expect(sixteen_bits(DType::kBFloat16, {0x3F80, 0xC000, 0x7FC0}), {std::sqrt(5.0), -2, 1, 1});
}

TEST(TensorValues, AreSummarizedPieceByPiece) {
  std::vector<float> values(100'000, 1);
  values[9'000] = -5;
  values[99'999] = 7;
  const ValueSummary summary = summarize(Tensor::from(values, {100'000}));
  EXPECT_DOUBLE_EQ(summary.norm, std::sqrt(99'998.0 + 25 + 49));
  EXPECT_EQ(summary.least, -5);
  EXPECT_EQ(summary.most, 7);
}

template <class T>
ValueDifference between(const std::vector<T>& a, const std::vector<T>& b) {
  const auto size = static_cast<int64_t>(a.size());
  return difference(Tensor::from(a, {size}), Tensor::from(b, {size}));
}

TEST(TensorValues, AreHeldAgainstOthers) {
  const auto expect = [](const ValueDifference& got, const ValueDifference& wanted) {
    EXPECT_EQ(got.elements, wanted.elements);
    EXPECT_DOUBLE_EQ(got.absolute, wanted.absolute);
    EXPECT_DOUBLE_EQ(got.relative, wanted.relative);
  };
  expect(between<float>({1, 2}, {1, 2}), {0, 0, 0});
  expect(between<float>({1, 100, -4}, {1, 101, 4}), {2, 8, 2});
  expect(between<float>({0}, {-0.0F}), {1, 0, 0});
  expect(between<float>({kNan, kInfinity}, {kNan, kInfinity}), {0, 0, 0});
  expect(between<float>({kNan}, {-kNan}), {1, 0, 0});
  expect(between<float>({1}, {kNan}), {1, kInfinity, kInfinity});
  expect(between<float>({kInfinity}, {-kInfinity}), {1, kInfinity, kInfinity});
  expect(between<bool>({true}, {false}), {1, 1, 1});
  const int64_t large = int64_t{1} << 62;
  expect(between<int64_t>({large}, {large + 1}), {1, 1, 1.0 / static_cast<double>(large)});
  expect(
      difference(sixteen_bits(DType::kFloat16, {0x3C00}), sixteen_bits(DType::kFloat16, {0x4000})),
      {1, 1, 0.5});
  std::vector<double> values(100'000, 1);
  std::vector<double> others = values;
  others[70'001] = 4;
  expect(between(values, others), {1, 3, 0.75});
}

}  // namespace
}  // namespace fleet::inspect

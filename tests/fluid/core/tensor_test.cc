#include "fluid/core/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;

TEST(Tensor, CopiesShareMemoryAndClonesDoNot) {
  Tensor original = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  Tensor handle = original;
  const Tensor clone = original.clone();
  handle.data<float>()[0] = 9;
  EXPECT_THAT(original.values<float>(), ElementsAre(9, 2, 3, 4));
  EXPECT_THAT(clone.values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(Tensor, CopyToAPlaceHasItsOwnMemoryAndTheSameContents) {
  Tensor original = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  original.set_lod({{0, 2}});
  const Tensor copy = original.rows(1, 2).copy_to(CPUPlace());
  const Tensor whole = original.copy_to(CPUPlace());
  original.data<float>()[3] = 9;
  EXPECT_THAT(copy.values<float>(), ElementsAre(3, 4));
  EXPECT_EQ(whole.lod(), original.lod());
}

TEST(Tensor, ADeviceThatCannotBeUsedIsAnErrorThatNamesIt) {
  const Tensor host = Tensor::from<float>({1, 2}, {2});
  try {
    host.copy_to(CUDAPlace(4096));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotSupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cuda:4096"));
  }
}

TEST(Tensor, RowsAndReshapesAreViews) {
  Tensor whole = Tensor::from<int64_t>({1, 2, 3, 4, 5, 6}, {3, 2});
  Tensor rows = whole.rows(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 2}));
  rows.data<int64_t>()[0] = 30;
  EXPECT_EQ(whole.reshaped({6}).values<int64_t>()[2], 30);
  EXPECT_EQ(whole.rows(1, 1).numel(), 0);
  EXPECT_THROW(whole.rows(2, 4), Error);
  EXPECT_THROW(whole.reshaped({5}), Error);
}

TEST(Tensor, ResetKeepsMemoryThatIsLargeEnoughAndItsOwn) {
  Tensor tensor(DType::kFloat32, {4, 4});
  const std::byte* memory = tensor.raw();
  tensor.reset(DType::kFloat64, {2, 4});
  EXPECT_EQ(tensor.raw(), memory);
  const Tensor other = tensor;
  tensor.reset(DType::kFloat32, {1});
  EXPECT_NE(tensor.raw(), memory);
  EXPECT_EQ(other.raw(), memory);
  EXPECT_THROW(tensor.reset(DType::kFloat32, {-1, 2}), Error);
}

TEST(Tensor, ChecksTypesAndCounts) {
  Tensor tensor = Tensor::scalar<int32_t>(7);
  EXPECT_EQ(tensor.item<double>(), 7);
  EXPECT_THROW(tensor.data<float>(), Error);
  EXPECT_THROW(Tensor::zeros(DType::kFloat32, {2}).item<float>(), Error);
  EXPECT_THROW(Tensor::from<float>({1, 2}, {3}), Error);
  EXPECT_THROW(tensor.copy_from(Tensor::scalar(1.0f)), Error);
  EXPECT_EQ(tensor.to_string(), "int32[1] {7}");
}

TEST(Tensor, CarriesItsSequences) {
  Tensor tensor(DType::kFloat32, {5, 2});
  EXPECT_TRUE(tensor.lod().empty());
  tensor.set_lod({{0, 2, 5}});
  EXPECT_EQ(tensor.clone().lod(), (LoD{{0, 2, 5}}));
  EXPECT_TRUE(tensor.rows(0, 2).lod().empty());
}

}  // namespace
}  // namespace fleet::fluid

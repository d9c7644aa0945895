#include "fluid/core/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "fluid/core/dtype.h"

namespace fleet::fluid {
namespace {

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ((Shape{2, 3, 4}).numel(1, 3), 12);
  EXPECT_EQ((Shape{5, 0}).numel(), 0);
  EXPECT_EQ((Shape{-1, 4}).numel(), Shape::kUnknown);
  EXPECT_EQ((Shape{-1, 4}).numel(1, 2), 4);
}

TEST(Shape, CountsDimensionsFromTheEnd) {
  Shape shape{2, 3, 4};
  EXPECT_EQ(shape[-1], 4);
  shape.set(-2, 7);
  EXPECT_EQ(shape, (Shape{2, 7, 4}));
}

TEST(Shape, AnUnknownDimensionFitsAnything) {
  EXPECT_TRUE((Shape{-1, 4}).compatible({8, 4}));
  EXPECT_TRUE((Shape{8, 4}).compatible({8, -1}));
  EXPECT_FALSE((Shape{-1, 4}).compatible({8, 5}));
  EXPECT_FALSE((Shape{-1, 4}).compatible({8, 4, 1}));
  EXPECT_FALSE((Shape{-1, 4}) == (Shape{8, 4}));
}

TEST(Shape, HasABoundedRank) {
  Shape shape{1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_THROW(shape.push_back(1), Error);
}

TEST(DType, IsReadByItsNameOrRefusedWithTheNearest) {
  for (const DType dtype : {DType::kBool, DType::kInt64, DType::kBFloat16, DType::kFloat64}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  try {
    parse_dtype("flot32");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("float32"), std::string::npos);
  }
}

}  // namespace
}  // namespace fleet::fluid

#include "base/optional_ptr.h"

#include <gtest/gtest.h>
#include <string>

namespace fleet {
namespace {

TEST(OptionalPtr, HasNothingAtFirst) {
  const OptionalPtr<std::string> none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.to_optional(), std::nullopt);
  EXPECT_EQ(none, OptionalPtr<std::string>(std::nullopt));
  EXPECT_EQ(sizeof(none), sizeof(void*));
}

TEST(OptionalPtr, CopiesHaveValuesOfTheirOwn) {
  OptionalPtr<std::string> a = std::string("one");
  OptionalPtr<std::string> b = a;
  EXPECT_EQ(a, b);
  *b += " more";
  EXPECT_EQ(*a, "one");
  EXPECT_NE(a, b);
  a = b;
  EXPECT_EQ(a->size(), 8U);
  a = OptionalPtr<std::string>();
  EXPECT_FALSE(a.has_value());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace fleet

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

#include "fluid/program/attribute.h"

namespace fleet::fluid {
namespace {

std::vector<std::string> names_of(const AttributeMap& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

TEST(AttributeMap, IsInAlphabeticalOrder) {
  AttributeMap map = {{"scale", 2.0}, {"axis", int64_t{1}}};
  map["bias"] = 1.0;
  EXPECT_THAT(names_of(map), ::testing::ElementsAre("axis", "bias", "scale"));
  EXPECT_EQ(map.size(), 3U);
  EXPECT_EQ(map.at("axis"), Attribute(int64_t{1}));
  map.erase("bias");
  map.erase("bias");
  EXPECT_THAT(names_of(map), ::testing::ElementsAre("axis", "scale"));
}

TEST(AttributeMap, TakesTheFirstOfSeveralOfOneName) {
  const AttributeMap map = {{"axis", int64_t{1}}, {"axis", int64_t{2}}};
  EXPECT_EQ(map, (AttributeMap{{"axis", int64_t{1}}}));
}

TEST(AttributeMap, FindsWhatIsThereOnly) {
  const AttributeMap map = {{"axis", int64_t{1}}};
  EXPECT_EQ(map.find("axis")->second, Attribute(int64_t{1}));
  EXPECT_EQ(map.find("axes"), map.end());
  EXPECT_TRUE(map.contains("axis"));
  EXPECT_FALSE(map.contains(""));
  EXPECT_THROW(map.at("axes"), std::out_of_range);
  EXPECT_TRUE(AttributeMap().empty());
  EXPECT_EQ(AttributeMap().find("axis"), AttributeMap().end());
}

TEST(AttributeMap, CopiesShareUntilOneChanges) {
  const AttributeMap a = {{"axis", int64_t{1}}};
  AttributeMap b = a;
  EXPECT_TRUE(a.shares_with(b));
  b["axis"] = int64_t{2};
  EXPECT_FALSE(a.shares_with(b));
  EXPECT_EQ(a.at("axis"), Attribute(int64_t{1}));
  EXPECT_EQ(b.at("axis"), Attribute(int64_t{2}));
  EXPECT_NE(a, b);
  b["axis"] = int64_t{1};
  EXPECT_EQ(a, b);
  AttributeMap c = a;
  c.erase("axis");
  EXPECT_EQ(c, AttributeMap());
  EXPECT_EQ(a.size(), 1U);
}

}  // namespace
}  // namespace fleet::fluid

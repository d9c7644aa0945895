#include "base/archive.h"

#include <gtest/gtest.h>

namespace fleet {
namespace {

struct Inner {
  int32_t number = 0;
  std::string text;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(number), CEREAL_NVP(text));
  }
};

struct Outer {
  std::vector<Inner> items;
  std::map<std::string, std::vector<int64_t>> table;
  std::optional<bool> flag;
  std::variant<int64_t, std::string> choice;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(items), CEREAL_NVP(table), CEREAL_NVP(flag), CEREAL_NVP(choice));
  }
};

Outer sample() {
  Outer outer;
  outer.items = {{1, "one"}, {2, ""}};
  outer.table = {{"a", {1, 2}}, {"b", {}}};
  outer.flag = true;
  outer.choice = std::string("x");
  return outer;
}

TEST(Archive, RoundTripKeepsEveryMember) {
  const Outer back = decode<Outer>(encode(sample()), "sample").value();
  ASSERT_EQ(back.items.size(), 2u);
  EXPECT_EQ(back.items[0].text, "one");
  EXPECT_EQ(back.table.at("a"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(back.flag, true);
  EXPECT_EQ(std::get<std::string>(back.choice), "x");
}

TEST(Archive, EveryTruncationIsAnErrorNotACrash) {
  const auto bytes = encode(sample());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode<Outer>(std::span(bytes).first(n), "sample").ok()) << n;
  }
}

TEST(Archive, AHugeCountIsRefusedBeforeAllocation) {
  const std::vector<std::byte> bytes(4, std::byte{0xff});
  const auto result = decode<std::vector<int64_t>>(bytes, "numbers");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), ErrorCode::kBadFrame);
}

TEST(Archive, LeftOverBytesAreRefused) {
  auto bytes = encode(int32_t{1});
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode<int32_t>(bytes, "number").ok());
}

}  // namespace
}  // namespace fleet

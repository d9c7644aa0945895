#include "fluid/data/formats/parsers/multi_slot.h"

#include <gmock/gmock.h>

#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MultiSlotParser parser(MultiSlotOptions options = {}) {
  return MultiSlotParser({{SlotSpec::sparse("a")},
                          {SlotSpec::sparse("b", SlotType::kFloat)},
                          {SlotSpec::sparse("left out"), false},
                          {SlotSpec::dense("d", SlotType::kFloat, {2})}},
                         options);
}

// Text and values of the same records as Paddle 1.8.5's QueueDataset prints them.
TEST(MultiSlot, ReadsWhatPaddleReads) {
  const MultiSlotParser paddle({{SlotSpec::sparse("a")},
                                {SlotSpec::sparse("b", SlotType::kFloat)},
                                {SlotSpec::dense("d", SlotType::kFloat, {2})}});
  const Parsed parsed(paddle,
                      "2 1 18446744073709551615 1 0.5 2 1 2\n1 -3 2 1.5 2.5 2 3 4\n"
                      "1 7 1 9 2 5 6\n");
  const RecordRange two{&parsed.batch, 0, 2};
  const std::vector<Tensor> tensors = tensors_of({&two, 1});
  EXPECT_EQ(tensors[0].shape(), (Shape{3, 1}));
  EXPECT_THAT(tensors[0].values<int64_t>(), ElementsAre(1, -1, -3));
  EXPECT_EQ(tensors[0].lod(), (LoD{{0, 2, 3}}));
  EXPECT_THAT(tensors[1].values<float>(), ElementsAre(0.5f, 1.5f, 2.5f));
  EXPECT_EQ(tensors[1].lod(), (LoD{{0, 1, 3}}));
  EXPECT_EQ(tensors[2].shape(), (Shape{2, 2}));
  EXPECT_THAT(tensors[2].values<float>(), ElementsAre(1, 2, 3, 4));
  // Paddle's offsets [0, 2, 4] do not fit two rows; here there are none.
  EXPECT_THAT(tensors[2].lod(), IsEmpty());
}

TEST(MultiSlot, SkipsSlotsThatAreNotUsed) {
  const Parsed parsed(parser(), "1 4 1 2.5 3 x y z 2 1 2\n1 5 1 1 1 0 2 3 4\n");
  EXPECT_EQ(parsed.batch.records(), 2);
  EXPECT_EQ(parsed.batch.slots()->size(), 3u);
  EXPECT_THAT(parsed.ids(0, 1), ElementsAre(5));
  EXPECT_THAT(parsed.floats(2, 0), ElementsAre(1, 2));
}

TEST(MultiSlot, SpacesTabsCarriageReturnsAndEmptyLinesDoNotMatter) {
  const Parsed parsed(parser(), "\n  1  4\t1 2.5 1 0 2 1 2  \r\n\r\n1 5 1 1 1 0 2 3 4\r\n");
  EXPECT_EQ(parsed.batch.records(), 2);
  EXPECT_EQ(parsed.bad.count(), 0u);
  EXPECT_EQ(parsed.lines, 4u);
  EXPECT_THAT(parsed.floats(2, 1), ElementsAre(3, 4));
}

TEST(MultiSlot, BadLinesAreLeftOutWithTheirReason) {
  const Parsed parsed(parser(),
                      "1 4 1 2.5 1 0 2 1 2\n"
                      "1 4 1 2.5 1 0 3 1 2 3\n"
                      "0 1 2.5 1 0 2 1 2\n"
                      "1 x 1 2.5 1 0 2 1 2\n"
                      "1 4 1 2.5 1 0 2 1\n"
                      "1 4 1 2.5 1 0 2 1 2 9 9\n"
                      "1 5 1 3.5 1 0 2 3 4\n");
  EXPECT_EQ(parsed.batch.records(), 2);
  EXPECT_EQ(parsed.bad.count(), 5u);
  EXPECT_THAT(parsed.reason(0),
              HasSubstr("slot 'd' (number 4) has a count of 3, but a width of 2"));
  EXPECT_THAT(parsed.reason(1), HasSubstr("slot 'a' (number 1) has a count of 0"));
  EXPECT_THAT(parsed.reason(2), HasSubstr("no id of 64 bits"));
  EXPECT_THAT(parsed.reason(3), HasSubstr("has a count of 2, but only 1 words follow"));
  EXPECT_THAT(parsed.reason(4), HasSubstr("2 words are left over"));
  EXPECT_EQ(parsed.bad.kept()[2].line, 3u);
  EXPECT_EQ(parsed.bad.kept()[2].excerpt, "1 x 1 2.5 1 0 2 1 2");
  EXPECT_THAT(parsed.ids(0, 1), ElementsAre(5));
  EXPECT_THAT(parsed.floats(1, 1), ElementsAre(3.5f));
  EXPECT_THAT(parsed.floats(2, 1), ElementsAre(3, 4));
}

TEST(MultiSlot, HugeAndBrokenCountsTakeNoMemory) {
  for (const std::string count :
       {"18446744073709551615", "4294967296", "99999999999999999999999", "-1", "1.5", "a", "+1"}) {
    const Parsed parsed(parser(), count + " 4 1 2.5 1 0 2 1 2\n");
    EXPECT_EQ(parsed.bad.count(), 1u) << count;
  }
}

TEST(MultiSlot, HugeWidthsTakeNoMemory) {
  const MultiSlotParser wide({{SlotSpec::dense("a", SlotType::kFloat, {int64_t{1} << 39})}});
  EXPECT_EQ(Parsed(wide, "549755813888 1 2 3\n3 1 2 3\n").bad.count(), 2u);
}

TEST(MultiSlot, EmptySequencesAreAChoice) {
  const std::string text = "0 1 2.5 0 2 1 2\n1 3 0 0 2 1 2\n";
  EXPECT_EQ(Parsed(parser(), text).bad.count(), 2u);
  const Parsed parsed(parser({.allow_empty = true}), text);
  EXPECT_EQ(parsed.batch.records(), 2);
  const RecordRange all{&parsed.batch, 0, 2};
  EXPECT_EQ(tensors_of({&all, 1})[0].lod(), (LoD{{0, 0, 1}}));
  // Never of a slot with a width.
  EXPECT_EQ(Parsed(parser({.allow_empty = true}), "0 0 0 0\n").bad.count(), 1u);
}

TEST(MultiSlot, ALineMayBeLong) {
  const MultiSlotParser one({{SlotSpec::sparse("a")}});
  std::string text = "1 7\n200000";
  for (int i = 0; i < 200000; ++i) text += " " + std::to_string(i);
  const Parsed parsed(one, text + "\n1 8\n");
  ASSERT_EQ(parsed.batch.records(), 3);
  EXPECT_EQ(parsed.batch.ids(0, 1).size(), 200000u);
  EXPECT_EQ(parsed.batch.ids(0, 1)[199999], 199999u);
  EXPECT_THAT(parsed.ids(0, 2), ElementsAre(8));
}

TEST(MultiSlot, OneSlotAtLeastIsUsed) {
  EXPECT_THROW(MultiSlotParser({}), UsageError);
  EXPECT_THROW(MultiSlotParser({{SlotSpec::sparse("a"), false}}), UsageError);
}

}  // namespace
}  // namespace fleet::fluid::data

#include "fluid/data/formats/parsers/criteo.h"

#include <cmath>
#include <gmock/gmock.h>

#include "base/hash.h"
#include "base/strings.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A line of which cells are changed: I1 is 1 … I13 is 13, C1 is 00000001 …
std::string line_of(const std::map<std::string, std::string>& changes = {},
                    const std::string& label = "1") {
  std::vector<std::string> cells = {label};
  for (int i = 1; i <= 13; ++i) cells.push_back(std::to_string(i));
  for (int i = 1; i <= 26; ++i)
    cells.push_back("000000" + hex_digits(static_cast<uint64_t>(i)).substr(14));
  for (const auto& [name, cell] : changes) {
    const auto number = static_cast<size_t>(*parse_int(name.substr(1)));
    cells[name[0] == 'I' ? number : 13 + number] = cell;
  }
  return join(cells, "\t") + "\n";
}

uint64_t id(uint64_t slot, uint64_t value) {
  return slot << 40 | value;
}

TEST(Criteo, ReadsALine) {
  const Parsed parsed(CriteoParser({.dense = DenseTransform::kNone}),
                      line_of({{"C2", "ffffffff"}, {"C3", "DeadBeef"}, {"C26", "7"}}, "0"));
  ASSERT_EQ(parsed.batch.records(), 1);
  EXPECT_THAT(parsed.ids(0, 0), ElementsAre(0));
  EXPECT_THAT(parsed.floats(1, 0), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  EXPECT_THAT(parsed.ids(2, 0), ElementsAre(id(1, 1)));
  EXPECT_THAT(parsed.ids(3, 0), ElementsAre(id(2, 0xffffffff)));
  EXPECT_THAT(parsed.ids(4, 0), ElementsAre(id(3, 0xdeadbeef)));
  EXPECT_THAT(parsed.ids(27, 0), ElementsAre(id(26, 7)));
  const RecordRange all{&parsed.batch, 0, 1};
  const std::vector<Tensor> tensors = tensors_of({&all, 1});
  EXPECT_EQ(tensors[0].shape(), (Shape{1, 1}));
  EXPECT_EQ(tensors[1].shape(), (Shape{1, 13}));
  EXPECT_EQ(tensors[2].lod(), (LoD{{0, 1}}));
  EXPECT_EQ((*parsed.batch.slots())[2].name, "C1");
}

TEST(Criteo, CellsMayBeEmpty) {
  const std::string text = line_of({{"I1", ""}, {"I13", ""}, {"C1", ""}, {"C26", ""}});
  const Parsed parsed(CriteoParser({.dense = DenseTransform::kNone, .dense_missing = -5}), text);
  EXPECT_EQ(parsed.floats(1, 0)[0], -5);
  EXPECT_EQ(parsed.floats(1, 0)[12], -5);
  EXPECT_THAT(parsed.ids(2, 0), ElementsAre(id(1, uint64_t{1} << 32)));
  EXPECT_THAT(parsed.ids(27, 0), ElementsAre(id(26, uint64_t{1} << 32)));
  const Parsed bare(CriteoParser({.ids = CategoryIds::kValue}), "1" + std::string(39, '\t') + "\n");
  EXPECT_THAT(bare.floats(1, 0), Each(0.0f));
  EXPECT_THAT(bare.ids(5, 0), ElementsAre(uint64_t{1} << 32));
}

TEST(Criteo, WholeNumbersOfEveryLengthAndSign) {
  for (const int64_t number : {int64_t{0}, int64_t{-1}, int64_t{-3}, int64_t{9}, int64_t{12345678},
                               int64_t{-12345678}, int64_t{123456789}, int64_t{-1234567890123}}) {
    const std::string text = line_of({{"I1", std::to_string(number)},
                                      {"I2", std::to_string(number)},
                                      {"I13", std::to_string(number)}});
    const Parsed parsed(CriteoParser({.dense = DenseTransform::kNone}), text);
    ASSERT_EQ(parsed.batch.records(), 1) << number;
    for (const size_t i : {0, 1, 12}) {
      EXPECT_EQ(parsed.floats(1, 0)[i], static_cast<float>(number));
    }
  }
}

TEST(Criteo, LogarithmsAreThoseOfLog1p) {
  std::string text;
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < 3000; ++i) {
    numbers.push_back(static_cast<int64_t>(std::pow(1.008, static_cast<double>(i))) + i % 7 - 3);
    text += line_of({{"I5", std::to_string(numbers.back())}});
  }
  const Parsed parsed(CriteoParser(), text);
  ASSERT_EQ(parsed.batch.records(), 3000);
  for (int64_t i = 0; i < 3000; ++i) {
    const auto number = static_cast<double>(std::max<int64_t>(0, numbers[static_cast<size_t>(i)]));
    const double expected = std::log1p(static_cast<double>(static_cast<float>(number)));
    EXPECT_NEAR(parsed.floats(1, i)[4], expected, 1e-6 * expected) << number;
  }
}

TEST(Criteo, DenseValuesMayBeScaled) {
  CriteoOptions options = {.dense = DenseTransform::kMinMax, .dense_missing = 9};
  options.dense_min.assign(13, 1);
  options.dense_range.assign(13, 2);
  const Parsed parsed(CriteoParser(options), line_of({{"I2", ""}}));
  EXPECT_EQ(parsed.floats(1, 0)[0], 0);
  EXPECT_EQ(parsed.floats(1, 0)[1], 9);
  EXPECT_EQ(parsed.floats(1, 0)[2], 1);
}

TEST(Criteo, IdsMayBeHashed) {
  const Parsed parsed(CriteoParser({.ids = CategoryIds::kHashed, .buckets = 1000}),
                      line_of({{"C2", ""}}));
  for (uint64_t slot = 1; slot <= 26; ++slot) {
    const uint64_t whole = id(slot, slot == 2 ? uint64_t{1} << 32 : slot);
    EXPECT_EQ(parsed.ids(1 + slot, 0)[0],
              xxh64({reinterpret_cast<const char*>(&whole), sizeof whole}) % 1000);
  }
}

TEST(Criteo, FilesWithoutLabelsAreReadToo) {
  std::string text;
  for (int i = 0; i < 3; ++i) text += line_of().substr(2);
  const Parsed parsed(CriteoParser({.labelled = false, .dense = DenseTransform::kNone}), text);
  ASSERT_EQ(parsed.batch.records(), 3);
  EXPECT_EQ(parsed.batch.slots()->size(), 27u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parsed.floats(0, i)[0], 1);
    EXPECT_THAT(parsed.ids(1, i), ElementsAre(id(1, 1)));
  }
}

TEST(Criteo, CarriageReturnsAndEmptyLinesDoNotMatter) {
  std::string text = line_of({{"C26", "ab"}});
  text.insert(text.size() - 1, "\r");
  std::string empty = line_of({{"C26", ""}});
  empty.insert(empty.size() - 1, "\r");
  const Parsed parsed(CriteoParser(), "\n" + text + "\r\n" + empty + "\n");
  EXPECT_EQ(parsed.batch.records(), 2);
  EXPECT_EQ(parsed.bad.count(), 0u);
  EXPECT_EQ(parsed.lines, 5u);
  EXPECT_THAT(parsed.ids(27, 0), ElementsAre(id(26, 0xab)));
  EXPECT_THAT(parsed.ids(27, 1), ElementsAre(id(26, uint64_t{1} << 32)));
}

TEST(Criteo, BadLinesAreLeftOutWithTheirReason) {
  const auto reason = [](const std::string& text) {
    const Parsed parsed(CriteoParser(), line_of() + text + line_of());
    EXPECT_EQ(parsed.batch.records(), 2);
    EXPECT_EQ(parsed.bad.count(), 1u) << text;
    return parsed.bad.count() > 0 ? parsed.reason(0) : "";
  };
  EXPECT_THAT(reason(line_of({}, "2")), HasSubstr("label"));
  EXPECT_THAT(reason(line_of({}, "")), HasSubstr("label"));
  EXPECT_THAT(reason(line_of({{"I1", "x"}})), HasSubstr("cell I1 "));
  EXPECT_THAT(reason(line_of({{"I13", "-"}})), HasSubstr("cell I13 "));
  EXPECT_THAT(reason(line_of({{"I4", "1.5"}})), HasSubstr("cell I4 "));
  EXPECT_THAT(reason(line_of({{"I4", "99999999999999999999"}})), HasSubstr("cell I4 "));
  EXPECT_THAT(reason(line_of({{"C1", "g"}})), HasSubstr("cell C1 "));
  EXPECT_THAT(reason(line_of({{"C26", "123456789"}})), HasSubstr("cell C26 "));
  EXPECT_THAT(reason("1\t2\n"), HasSubstr("2 cells, not 40"));
  EXPECT_THAT(reason(line_of().substr(0, line_of().size() - 1) + "\t\n"), HasSubstr("41 cells"));
}

TEST(Criteo, OptionsThatContradictAreMistakes) {
  EXPECT_THROW(CriteoParser({.ids = CategoryIds::kHashed}), UsageError);
  EXPECT_THROW(CriteoParser({.dense = DenseTransform::kMinMax}), UsageError);
  CriteoOptions zero = {.dense = DenseTransform::kMinMax};
  zero.dense_min.assign(13, 0);
  zero.dense_range.assign(13, 0);
  EXPECT_THROW(CriteoParser{zero}, UsageError);
}

}  // namespace
}  // namespace fleet::fluid::data

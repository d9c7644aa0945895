// Texts that are damaged at random: a parser keeps what it can read, in batches that are whole, and
// counts the rest; it never crashes. A sanitizer sees what is read outside of the text.
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include "fluid/core/lod.h"
#include "fluid/data/formats/parsers/criteo.h"
#include "fluid/data/formats/parsers/csv_parser.h"
#include "fluid/data/formats/parsers/libsvm.h"
#include "fluid/data/formats/parsers/multi_slot.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

constexpr int kTexts = 3000;

std::string mutated(std::string text, std::mt19937_64& random) {
  static constexpr std::string_view kMarks = "\n\r\t ,;:\"-+.#0123456789eEaf\0\xff";
  for (uint64_t changes = random() % 8; changes > 0 && !text.empty(); --changes) {
    const size_t at = random() % text.size();
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = kMarks[random() % kMarks.size()];
        break;
      case 2:
        text.erase(at, random() % 20);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      default:
        text.insert(at, std::to_string(random()));
    }
  }
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

void expect_whole(const RecordBatch& batch) {
  if (batch.records() == 0) return;
  const RecordRange all{&batch, 0, batch.records()};
  for (const Tensor& tensor : tensors_of({&all, 1})) EXPECT_EQ(fault_of_lod(tensor), "");
}

// Also: cut into pieces of whole records, a text gives the same.
void expect_survives(const RecordParser& parser, const std::string& text,
                     const std::string& header) {
  const Parsed whole(parser, text, header);
  expect_whole(whole.batch);
  const auto lines = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
  EXPECT_LE(static_cast<uint64_t>(whole.batch.records()) + whole.bad.count(), lines);
  EXPECT_EQ(whole.lines, lines);
  const size_t half = parser.whole_records(std::string_view(text).substr(0, text.size() / 2));
  const Parsed first(parser, text.substr(0, half), header);
  const Parsed second(parser, text.substr(half), header);
  EXPECT_EQ(first.batch.records() + second.batch.records(), whole.batch.records());
  EXPECT_EQ(first.bad.count() + second.bad.count(), whole.bad.count());
  EXPECT_EQ(first.batch.bytes() + second.batch.bytes(), whole.batch.bytes());
}

void expect_survives_all(const RecordParser& parser, const std::string& line,
                         const std::string& header = "") {
  std::mt19937_64 random(7);
  for (int i = 0; i < kTexts; ++i) {
    std::string text;
    for (uint64_t lines = random() % 6; lines > 0; --lines) text += line + "\n";
    expect_survives(parser, mutated(text, random), header);
  }
}

TEST(HostileText, MultiSlot) {
  for (const bool empty : {true, false}) {
    expect_survives_all(MultiSlotParser({{SlotSpec::sparse("a")},
                                         {SlotSpec::sparse("b", SlotType::kFloat)},
                                         {SlotSpec::sparse("c"), false},
                                         {SlotSpec::dense("d", SlotType::kFloat, {2})}},
                                        {.allow_empty = empty}),
                        "2 17 18446744073709551615 1 0.53 3 x y z 2 1e-3 -2.5");
  }
}

TEST(HostileText, Criteo) {
  std::string line = "1";
  for (int i = 0; i < 13; ++i) line += "\t" + (i == 4 ? "" : std::to_string(i * i * i - 2));
  for (int i = 0; i < 26; ++i) line += i == 9 ? "\t" : "\t0f3a" + std::to_string(1000 + i);
  expect_survives_all(CriteoParser(), line);
  expect_survives_all(CriteoParser({.labelled = false, .ids = CategoryIds::kHashed, .buckets = 9}),
                      line.substr(2));
}

TEST(HostileText, Csv) {
  const std::vector<CsvSlot> schema = {
      {.name = "x", .columns = {"a", "c"}},
      {.name = "b", .kind = CsvKind::kHashed, .buckets = 100},
      {.name = "d", .kind = CsvKind::kWord, .vocabulary = {"red", "blue"}, .unknown = 2}};
  expect_survives_all(CsvParser(schema), "1.5,abc,-2e3,red", "a,b,c,d\n");
  expect_survives_all(CsvParser(schema), "1.5,\"a\"\"b,\",\"-2\",blue", "a,b,c,d\n");
}

TEST(HostileText, Libsvm) {
  expect_survives_all(LibsvmParser(), "1 3:0.5 17:-2 999:1e3 # note");
  expect_survives_all(LibsvmParser({.features = 20, .qid = true}), "0 qid:5 3:0.5 17:-2");
}

// Pieces are cut, and vectors of 64 bytes end, at every place of a line.
TEST(HostileText, LinesOfEveryLengthAreTheSameInEveryPlace) {
  const MultiSlotParser parser({{SlotSpec::sparse("a")}});
  std::string text;
  std::vector<uint64_t> expected;
  for (uint64_t i = 0; i < 4000; ++i) {
    expected.push_back(i * i * i);
    text += std::string(i % 67, ' ') + "1 " + std::to_string(i * i * i) + "\n";
  }
  const Parsed parsed(parser, text);
  ASSERT_EQ(parsed.batch.records(), 4000);
  for (int64_t i = 0; i < 4000; ++i) {
    EXPECT_EQ(parsed.batch.ids(0, i)[0], expected[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace fleet::fluid::data

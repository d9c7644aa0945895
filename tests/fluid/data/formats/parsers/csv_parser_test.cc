#include "fluid/data/formats/parsers/csv_parser.h"

#include <gmock/gmock.h>

#include "base/hash.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CsvText, ReadsColumnsByName) {
  const CsvParser parser({{.name = "dense", .columns = {"b", "a"}},
                          {.name = "id", .kind = CsvKind::kId, .sequence = true},
                          {.name = "job", .kind = CsvKind::kHashed, .buckets = 1000},
                          {.name = "word", .kind = CsvKind::kWord, .vocabulary = {"x", "y"}}});
  const Parsed parsed(parser,
                      "1, 2.5,-7,clerk,y,unused\r\n\n3,4e1,18446744073709551615, baker ,x,\n",
                      "a,b,id,job,word,more\n");
  ASSERT_EQ(parsed.batch.records(), 2);
  EXPECT_EQ(parsed.lines, 3u);
  EXPECT_THAT(parsed.floats(0, 0), ElementsAre(2.5f, 1));
  EXPECT_THAT(parsed.floats(0, 1), ElementsAre(40, 3));
  EXPECT_THAT(parsed.ids(1, 0), ElementsAre(static_cast<uint64_t>(-7)));
  EXPECT_THAT(parsed.ids(1, 1), ElementsAre(~uint64_t{0}));
  EXPECT_THAT(parsed.ids(2, 0), ElementsAre(xxh64("clerk") % 1000));
  EXPECT_THAT(parsed.ids(2, 1), ElementsAre(xxh64("baker") % 1000));
  EXPECT_THAT(parsed.ids(3, 0), ElementsAre(1));
  const RecordRange all{&parsed.batch, 0, 2};
  EXPECT_EQ(tensors_of({&all, 1})[0].shape(), (Shape{2, 2}));
  EXPECT_EQ(tensors_of({&all, 1})[1].lod(), (LoD{{0, 1, 2}}));
}

TEST(CsvText, QuotedCellsMayHoldAnything) {
  const CsvParser parser(
      {{.name = "n", .columns = {"1"}}, {.name = "t", .columns = {"0"}, .kind = CsvKind::kHashed}},
      {.delimiter = ';', .header = false});
  const std::string text =
      "\"a;1\";\"2\"\r\n\"say \"\"hi\"\"\";3\n\"two\nlines\"; 4 \nbare\"quote;5\n\"\";6\n";
  EXPECT_EQ(parser.whole_records(text), text.size());
  const Parsed parsed(parser, text);
  ASSERT_EQ(parsed.batch.records(), 5);
  EXPECT_EQ(parsed.lines, 6u);
  EXPECT_THAT(parsed.ids(1, 0), ElementsAre(xxh64("a;1")));
  EXPECT_THAT(parsed.ids(1, 1), ElementsAre(xxh64("say \"hi\"")));
  EXPECT_THAT(parsed.ids(1, 2), ElementsAre(xxh64("two\nlines")));
  EXPECT_THAT(parsed.ids(1, 3), ElementsAre(xxh64("bare\"quote")));
  EXPECT_THAT(parsed.ids(1, 4), ElementsAre(xxh64("")));
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_THAT(parsed.floats(0, i), ElementsAre(2.0f + static_cast<float>(i)));
}

TEST(CsvText, RecordsEndOutsideOfQuotes) {
  const CsvParser parser({{.name = "0"}}, {.header = false});
  EXPECT_EQ(parser.whole_records("1\n2\n3"), 4u);
  EXPECT_EQ(parser.whole_records("1\n\"2\n3"), 2u);
  EXPECT_EQ(parser.whole_records("\"1\n2\n\"\"\n"), 0u);
  EXPECT_EQ(parser.whole_records("\"1\n2\n\"\"\"\n3"), 9u);
  EXPECT_EQ(parser.whole_records("5\"\n6\n"), 5u);
}

TEST(CsvText, BadLinesAreLeftOutWithTheirReason) {
  const CsvParser parser(
      {{.name = "a"}, {.name = "w", .kind = CsvKind::kWord, .vocabulary = {"x"}}});
  const Parsed parsed(parser, "1,x\n2\n?,x\n3,z\n\"4\"q,x\n5,x\n", "a,w\n");
  EXPECT_EQ(parsed.batch.records(), 2);
  ASSERT_EQ(parsed.bad.count(), 4u);
  EXPECT_THAT(parsed.reason(0), HasSubstr("1 cells, not 2"));
  EXPECT_THAT(parsed.reason(1), HasSubstr("column 'a': the cell is no number"));
  EXPECT_THAT(parsed.reason(2), HasSubstr("column 'w': the vocabulary"));
  EXPECT_THAT(parsed.reason(3), HasSubstr("quoted cell"));
  EXPECT_EQ(parsed.bad.kept()[3].line, 4u);
  const Parsed open(parser, "1,x\n\"2,x\n3,x\n", "a,w\n");
  EXPECT_EQ(open.batch.records(), 1);
  EXPECT_EQ(open.bad.count(), 1u);
}

TEST(CsvText, WhatIsMissingMayHaveAValue) {
  const CsvParser parser(
      {{.name = "a", .missing = -1.5},
       {.name = "i", .kind = CsvKind::kId, .missing = -1},
       {.name = "w", .kind = CsvKind::kWord, .vocabulary = {"x"}, .unknown = 99}});
  const Parsed parsed(parser, ",,q\n", "a,i,w\n");
  EXPECT_THAT(parsed.floats(0, 0), ElementsAre(-1.5f));
  EXPECT_THAT(parsed.ids(1, 0), ElementsAre(~uint64_t{0}));
  EXPECT_THAT(parsed.ids(2, 0), ElementsAre(99));
  EXPECT_EQ(Parsed(CsvParser({{.name = "a"}}), ",\n", "a,b\n").bad.count(), 1u);
}

TEST(CsvText, MistakesOfTheSchemaNameTheColumn) {
  const CsvParser parser({{.name = "wage"}});
  EXPECT_THAT(message_of([&] { Parsed(parser, "1\n", "age,\"wags\"\n"); }),
              HasSubstr("one of age, wags"));
  EXPECT_THROW(CsvParser({}), UsageError);
  EXPECT_THROW(CsvParser({{.name = "w", .kind = CsvKind::kWord}}), UsageError);
  const CsvParser bare({{.name = "wage"}}, {.header = false});
  EXPECT_THROW(Parsed(bare, "1\n"), UsageError);
  EXPECT_EQ(Parsed(CsvParser({{.name = "a"}}), "1\n",
                   "\xEF\xBB\xBF"
                   "a\n")
                .batch.records(),
            1);
}

}  // namespace
}  // namespace fleet::fluid::data

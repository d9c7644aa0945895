#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "fluid/data/files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CsvTable, ReadsNumbersByColumn) {
  const auto table = CsvTable::parse("a,b,c\n1, 2.5,x\r\n\n-3,4e1,y");
  EXPECT_EQ(table.rows(), 2);
  EXPECT_THAT(table.names(), ElementsAre("a", "b", "c"));
  const Tensor numbers = table.numbers(std::vector<std::string>{"b", "a"}, DType::kFloat32);
  EXPECT_EQ(numbers.shape(), (Shape{2, 2}));
  EXPECT_THAT(numbers.values<float>(), ElementsAre(2.5f, 1, 40, -3));
  EXPECT_EQ(table.cell(1, "c"), "y");
}

TEST(CsvTable, ReadsQuotedCells) {
  const auto table = CsvTable::parse("\"a,1\";\"say \"\"hi\"\"\"\n\"two\nlines\";  x \n;\"\"\n",
                                     {.delimiter = ';', .header = false});
  ASSERT_EQ(table.rows(), 3);
  EXPECT_EQ(table.cell(0, "0"), "a,1");
  EXPECT_EQ(table.cell(0, "1"), "say \"hi\"");
  EXPECT_EQ(table.cell(1, "0"), "two\nlines");
  EXPECT_EQ(table.cell(1, "1"), "x");
  EXPECT_EQ(table.cell(2, "0"), "");
}

TEST(CsvTable, OfOneColumnKeepsQuotedCellsOfNothing) {
  const auto table = CsvTable::parse("a\n\"\"\n\nx\n");
  ASSERT_EQ(table.rows(), 2);
  EXPECT_EQ(table.cell(0, "a"), "");
  EXPECT_EQ(table.cell(1, "a"), "x");
}

TEST(CsvTable, NumbersWords) {
  const auto train = CsvTable::parse("job\nclerk\nbaker\nclerk\n");
  std::vector<std::string> vocabulary;
  EXPECT_THAT(train.categories("job", vocabulary).values<int64_t>(), ElementsAre(0, 1, 0));
  EXPECT_THAT(vocabulary, ElementsAre("clerk", "baker"));
  const auto test = CsvTable::parse("job\nbaker\nsmith\n");
  EXPECT_THAT(test.categories("job", vocabulary, 9).values<int64_t>(), ElementsAre(1, 9));
  EXPECT_THROW(test.categories("job", vocabulary), ResourceError);
}

template <class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CsvTable, MistakesNameLineAndColumn) {
  EXPECT_THAT(message([] { CsvTable::parse("a,b\n1,2\n\n3\n", {}, "file x.csv"); }),
              HasSubstr("file x.csv line 4"));
  EXPECT_THAT(message([] { CsvTable::parse("a\n\"q\nr\"z\n"); }), HasSubstr("line 2"));
  EXPECT_THAT(message([] { CsvTable::parse("a\n\"open"); }), HasSubstr("quoted"));
  const auto table = CsvTable::parse("age,wage\n1,2\n3,\"4\n\"\n5,?\n");
  const std::string text = message([&] { table.numbers(DType::kInt64); });
  EXPECT_THAT(text, HasSubstr("'wage'"));
  EXPECT_THAT(message([&] { table.cell(0, "wags"); }), HasSubstr("did you mean 'wage'"));
  EXPECT_THAT(message([&] { table.cell(3, "wage"); }), HasSubstr("0 to 2"));
}

TEST(CsvTable, LinesAreCountedThroughQuotedLineEnds) {
  const auto table = CsvTable::parse("a,b\n\"1\n\n\",2\nx,3\n");
  std::vector<std::string> none;
  EXPECT_THAT(message([&] {
                table.numbers(std::vector<std::string>{"b", "a"}, DType::kInt32);
              }),
              HasSubstr("line 2"));
  const auto later = CsvTable::parse("a,b\n1,\"\n\n\"\nx,3\n");
  EXPECT_THAT(message([&] { later.numbers(std::vector<std::string>{"a"}, DType::kInt32); }),
              HasSubstr("line 5"));
}

}  // namespace
}  // namespace fleet::fluid::data

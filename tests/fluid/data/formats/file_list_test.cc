#include "fluid/data/formats/file_list.h"

#include <gmock/gmock.h>
#include <numeric>

#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileListTest : public TextFiles {};

TEST_F(FileListTest, PatternsStandForTheirFilesInOrder) {
  for (const char* name : {"b-1", "a-2", "a-10", "a-1", "c"}) write(name, "");
  const std::vector<std::string> names = {path("c"), path("a-*"), path("[b]-?"), path("c")};
  EXPECT_THAT(expand_files(names), ElementsAre(path("c"), path("a-1"), path("a-10"), path("a-2"),
                                               path("b-1"), path("c")));
  const std::vector<std::string> plain = {path("not there")};
  EXPECT_EQ(expand_files(plain), plain);
  const std::vector<std::string> none = {path("z*")};
  EXPECT_THAT(message_of([&] { expand_files(none); }), HasSubstr(path("z*")));
}

// What fleet.split_files of Paddle 1.8.5 gives with Python 2.
TEST(SplitFiles, CutsBlocksAndGivesTheFirstWorkersMore) {
  const std::vector<std::string> files = {"a", "b", "c", "d", "e"};
  EXPECT_THAT(split_files(files, 0, 2), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_files(files, 1, 2), ElementsAre("d", "e"));
  EXPECT_THAT(split_files(files, 2, 3), ElementsAre("e"));
  EXPECT_THAT(split_files(files, 6, 7), IsEmpty());
  EXPECT_THAT(split_files({}, 0, 1), IsEmpty());
  EXPECT_THROW(split_files(files, 2, 2), UsageError);
  EXPECT_THROW(split_files(files, -1, 2), UsageError);
  EXPECT_THROW(split_files(files, 0, 0), UsageError);
}

TEST(Shuffled, IsAPermutationThatDependsOnTheSeedAlone) {
  std::vector<uint64_t> order = shuffled(1000, 3);
  EXPECT_EQ(order, shuffled(1000, 3));
  EXPECT_NE(order, shuffled(1000, 4));
  std::sort(order.begin(), order.end());
  std::vector<uint64_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0);
  EXPECT_EQ(order, numbers);
  EXPECT_THAT(shuffled(0, 1), IsEmpty());
  EXPECT_THAT(shuffled(1, 1), ElementsAre(0));
}

// Each of the 6 orders of 3 about as often.
TEST(Shuffled, IsUniform) {
  std::map<std::vector<uint64_t>, int> counts;
  for (uint64_t seed = 0; seed < 6000; ++seed) ++counts[shuffled(3, seed)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace fleet::fluid::data

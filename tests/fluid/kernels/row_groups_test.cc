#include "fluid/kernels/row_groups.h"

#include <gmock/gmock.h>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "fluid/core/value.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RowGroups, EqualRowsAreTogetherInTheOrderInWhichTheyOccur) {
  RowGroups groups;
  const std::vector<int64_t> rows = {7, 2, 7, 0, 2, 7};
  groups.group(rows, 8);
  EXPECT_FALSE(groups.as_given());
  EXPECT_THAT(groups.rows(), ElementsAre(0, 2, 7));
  EXPECT_THAT(groups.begin(), ElementsAre(0, 1, 3, 6));
  EXPECT_THAT(groups.order(), ElementsAre(3, 1, 4, 0, 2, 5));
}

TEST(RowGroups, AscendingRowsAreGroupsAsTheyCome) {
  RowGroups groups;
  groups.group(std::vector<int64_t>{3, 3}, 4);
  groups.group(std::vector<int64_t>{0, 2, 3}, 4);
  EXPECT_TRUE(groups.as_given());
  EXPECT_THAT(groups.rows(), ElementsAre(0, 2, 3));
  EXPECT_THAT(groups.order(), IsEmpty());
  groups.group({}, 4);
  EXPECT_TRUE(groups.as_given());
  EXPECT_EQ(groups.count(), 0U);
}

void expect_groups(const RowGroups& groups, const std::map<int64_t, std::vector<int64_t>>& wanted) {
  ASSERT_EQ(groups.count(), wanted.size());
  size_t group = 0;
  for (const auto& [row, positions] : wanted) {
    ASSERT_EQ(groups.rows()[group], row);
    const auto begin = groups.order().begin() + groups.begin()[group];
    const auto end = groups.order().begin() + groups.begin()[group + 1];
    ASSERT_EQ(std::vector<int64_t>(begin, end), positions) << "row " << row;
    ++group;
  }
}

TEST(RowGroups, ManyRowsAreGroupedAsFewAre) {
  TilePool pool({.threads = 3});
  const std::vector<Tiles> sorters = {Tiles(), Tiles(&pool)};
  for (const int64_t height : {int64_t{1}, int64_t{700}, int64_t{5'000'000}, int64_t{1} << 50}) {
    SCOPED_TRACE(height);
    const RandomKey key = RandomKey::of(1, "rows");
    std::vector<int64_t> rows;
    for (uint64_t i = 0; i < 50'000; ++i) {
      rows.push_back(static_cast<int64_t>(uniform_double(key, i) * static_cast<double>(height)));
    }
    std::map<int64_t, std::vector<int64_t>> wanted;
    for (size_t i = 0; i < rows.size(); ++i) wanted[rows[i]].push_back(static_cast<int64_t>(i));
    for (const Tiles& tiles : sorters) {
      RowGroups groups;
      groups.group(rows, height, tiles);
      expect_groups(groups, wanted);
    }
  }
}

TEST(RowGroups, IdsOfGrowingTablesAreAnyNumbers) {
  TilePool pool({.threads = 3});
  for (const size_t count : {size_t{60}, size_t{20'000}}) {
    std::vector<int64_t> ids = {std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<int64_t>::max(), 0, -1, 1};
    while (ids.size() < count) {
      const size_t at = ids.size();
      ids.push_back(at % 3 == 0 ? ids[at / 2] : static_cast<int64_t>(mix64(at)));
    }
    std::map<int64_t, std::vector<int64_t>> wanted;
    for (size_t i = 0; i < ids.size(); ++i) wanted[ids[i]].push_back(static_cast<int64_t>(i));
    for (const Tiles& tiles : {Tiles(), Tiles(&pool)}) {
      RowGroups groups;
      groups.group(ids, SelectedRows::kNoHeight, tiles);
      expect_groups(groups, wanted);
    }
  }
}

TEST(RowGroups, ARowThatIsNotThereIsAnError) {
  RowGroups groups;
  EXPECT_THROW(groups.group(std::vector<int64_t>{0, 4}, 4), Error);
  EXPECT_THROW(groups.group(std::vector<int64_t>{-1}, 4), Error);
}

}  // namespace
}  // namespace fleet::fluid

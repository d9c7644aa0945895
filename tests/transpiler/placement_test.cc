#include "transpiler/parameter_server/placement.h"

#include <gtest/gtest.h>

namespace fleet::transpiler {
namespace {

using fluid::Shape;

std::vector<int64_t> rows_of(const std::vector<RowSlice>& slices) {
  std::vector<int64_t> rows;
  for (const RowSlice& slice : slices) rows.push_back(slice.shape[0]);
  return rows;
}

TEST(SliceRows, CutsThousandRowsForThreeServersIntoAlmostEqualParts) {
  const auto slices = slice_rows({1000, 1000}, 3, 8192);
  EXPECT_EQ(rows_of(slices), (std::vector<int64_t>{334, 334, 332}));
  EXPECT_EQ(slices[2].offset, 668000);
}

TEST(SliceRows, KeepsSmallVariablesWhole) {
  EXPECT_EQ(slice_rows({1000}, 4, 8192).size(), 1u);
  EXPECT_EQ(slice_rows({128, 64}, 4, 8192).size(), 1u);   // exactly one block
  EXPECT_EQ(slice_rows({128, 128}, 4, 8192).size(), 2u);  // exactly two
  EXPECT_EQ(slice_rows({1000, 1000}, 1, 8192).size(), 1u);
}

TEST(SliceRows, NeverCutsARow) {
  EXPECT_EQ(rows_of(slice_rows({3, 10000}, 2, 8192)), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(rows_of(slice_rows({1, 100000}, 4, 8192)), (std::vector<int64_t>{1}));
}

TEST(SliceRows, CoversEveryElementOnce) {
  for (int64_t rows = 1; rows < 60; rows += 7) {
    for (const int64_t columns : {int64_t{1}, int64_t{300}, int64_t{9000}}) {
      for (int parts = 1; parts < 9; ++parts) {
        int64_t next = 0;
        for (const RowSlice& slice : slice_rows({rows, columns}, parts, 8192)) {
          EXPECT_EQ(slice.offset, next);
          EXPECT_GT(slice.shape[0], 0);
          next += slice.shape.numel();
        }
        EXPECT_EQ(next, rows * columns);
      }
    }
  }
}

TEST(Dispatcher, DealsInTurn) {
  Dispatcher dispatcher("RoundRobin", 3);
  EXPECT_EQ(dispatcher.next("a"), 0);
  EXPECT_EQ(dispatcher.next("b"), 1);
  EXPECT_EQ(dispatcher.next("c"), 2);
  EXPECT_EQ(dispatcher.next("d"), 0);
}

TEST(Dispatcher, HashesNamesStably) {
  Dispatcher first("HashName", 5);
  Dispatcher second("HashName", 5);
  const int server = first.next("fc_0.w_0.block1");
  second.next("something else");
  EXPECT_EQ(second.next("fc_0.w_0.block1"), server);
  EXPECT_GE(server, 0);
  EXPECT_LT(server, 5);
}

}  // namespace
}  // namespace fleet::transpiler

#include "strategies/parameter_server/worker/rows/hot_rows.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace fleet::strategies {
namespace {

using Ids = std::vector<uint64_t>;

// Of ids, the first element of each row that may be used; -1: none may.
std::vector<float> found(HotRows& rows, const Ids& ids, uint64_t step, size_t width) {
  std::vector<float> values(ids.size() * width, -1);
  const std::vector<bool> here = rows.find(ids, step, values.data());
  std::vector<float> firsts;
  for (size_t i = 0; i < ids.size(); ++i) firsts.push_back(here[i] ? values[i * width] : -1);
  return firsts;
}

void keep(HotRows& rows, const Ids& ids, std::vector<float> values, uint64_t step) {
  rows.keep(ids, step, values.data());
}

TEST(HotRows, AreUsedForSoManySteps) {
  HotRows rows(2, 3);
  keep(rows, {7, ~uint64_t{0}}, {1, 2, 3, 4}, 10);
  const Ids asked = {~uint64_t{0}, 8, 7};
  EXPECT_EQ(found(rows, asked, 10, 2), (std::vector<float>{3, -1, 1}));
  EXPECT_EQ(found(rows, asked, 13, 2), (std::vector<float>{3, -1, 1}));
  EXPECT_EQ(found(rows, asked, 14, 2), (std::vector<float>{-1, -1, -1}));
  keep(rows, {7}, {5, 6}, 14);
  EXPECT_EQ(found(rows, asked, 14, 2), (std::vector<float>{-1, -1, 5}));
}

TEST(HotRows, OldOnesAreForgotten) {
  HotRows rows(1, 1);
  Ids ids(3000);
  const std::vector<float> values(ids.size(), 1);
  for (uint64_t step = 0; step < 20; ++step) {
    std::iota(ids.begin(), ids.end(), step * ids.size());
    keep(rows, ids, values, step);
    EXPECT_LE(rows.size(), 5 * ids.size());
    EXPECT_EQ(found(rows, ids, step, 1), values);
  }
}

}  // namespace
}  // namespace fleet::strategies

#include "base/shard_tree.h"

#include <cstring>
#include <gmock/gmock.h>
#include <string>

#include "base/philox.h"
#include "base/strings.h"

namespace fleet {
namespace {

using ::testing::ElementsAre;

// The tree written down independently: the sum of one element over [begin, end).
template <class T>
T reference_sum(const std::vector<T>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return reference_sum(values, begin, begin + half) + reference_sum(values, begin + half, end);
}

template <class T>
std::vector<std::vector<T>> random_shards(int shards, size_t n) {
  std::vector<std::vector<T>> arrays(static_cast<size_t>(shards), std::vector<T>(n));
  for (size_t s = 0; s < arrays.size(); ++s) {
    for (size_t i = 0; i < n; ++i) {
      arrays[s][i] = static_cast<T>(1e3 * normal_double(RandomKey{7, 8}, i, s));
    }
  }
  return arrays;
}

template <class T>
std::vector<const T*> pointers(const std::vector<std::vector<T>>& arrays) {
  std::vector<const T*> result;
  for (const auto& array : arrays) result.push_back(array.data());
  return result;
}

template <class T>
std::vector<T> expected_sum(const std::vector<std::vector<T>>& arrays) {
  std::vector<T> sum(arrays[0].size());
  for (size_t i = 0; i < sum.size(); ++i) {
    std::vector<T> column;
    for (const auto& array : arrays) column.push_back(array[i]);
    sum[i] = reference_sum(column, 0, column.size());
  }
  return sum;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
class TreeSumTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, int64_t>;
TYPED_TEST_SUITE(TreeSumTest, Types);

TYPED_TEST(TreeSumTest, EqualsTheSerialTreeBitForBitForEveryShardCountAndSize) {
  for (int shards = 1; shards <= 19; ++shards) {
    for (const size_t n : {0, 1, 3, 511, 512, 513, 1500}) {
      const auto arrays = random_shards<TypeParam>(shards, n);
      std::vector<TypeParam> out(n);
      tree_sum<TypeParam>(pointers(arrays), out.data(), n);
      EXPECT_TRUE(same_bits(out, expected_sum(arrays))) << shards << " shards of " << n;
    }
  }
}

TYPED_TEST(TreeSumTest, MayWriteOverAnyOfItsInputs) {
  for (int shards = 1; shards <= 9; ++shards) {
    for (int target = 0; target < shards; ++target) {
      auto arrays = random_shards<TypeParam>(shards, 1100);
      const auto expected = expected_sum(arrays);
      auto& out = arrays[static_cast<size_t>(target)];
      tree_sum<TypeParam>(pointers(arrays), out.data(), out.size());
      EXPECT_TRUE(same_bits(out, expected)) << shards << " shards into shard " << target;
    }
  }
}

TYPED_TEST(TreeSumTest, PartialSumsOfAnyPartitionGiveTheSameBits) {
  constexpr size_t kSize = 700;
  for (int shards = 1; shards <= 17; ++shards) {
    const auto arrays = random_shards<TypeParam>(shards, kSize);
    const auto expected = expected_sum(arrays);
    for (int workers = 1; workers <= shards; ++workers) {
      std::vector<ShardRange> nodes;
      std::vector<std::vector<TypeParam>> partials;
      for (int w = 0; w < workers; ++w) {
        for (const auto& node : maximal_nodes(owned_shards(w, workers, shards), shards)) {
          const std::vector<std::vector<TypeParam>> own(arrays.begin() + node.begin,
                                                        arrays.begin() + node.end);
          nodes.push_back(node);
          tree_sum<TypeParam>(pointers(own), partials.emplace_back(kSize).data(), kSize);
        }
      }
      std::vector<TypeParam> out(kSize);
      const auto parts = pointers(partials);
      TreeSum(nodes, shards)(std::span<const TypeParam* const>(parts), out.data(), kSize);
      EXPECT_TRUE(same_bits(out, expected)) << shards << " shards on " << workers << " workers";
    }
  }
}

TEST(ShardTreeTest, SplitsAtTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(tree_split(2), 1);
  EXPECT_EQ(tree_split(3), 2);
  EXPECT_EQ(tree_split(4), 2);
  EXPECT_EQ(tree_split(5), 4);
  EXPECT_EQ(tree_split(8), 4);
  EXPECT_EQ(tree_split(9), 8);
}

TEST(ShardTreeTest, MaximalNodesAreTheLargestInsideARange) {
  EXPECT_THAT(maximal_nodes({0, 8}, 8), ElementsAre(ShardRange{0, 8}));
  EXPECT_THAT(maximal_nodes({1, 6}, 8),
              ElementsAre(ShardRange{1, 2}, ShardRange{2, 4}, ShardRange{4, 6}));
  EXPECT_THAT(maximal_nodes({3, 5}, 5), ElementsAre(ShardRange{3, 4}, ShardRange{4, 5}));
  EXPECT_THAT(maximal_nodes({4, 7}, 7), ElementsAre(ShardRange{4, 7}));
  EXPECT_TRUE(maximal_nodes({2, 2}, 4).empty());
}

TEST(ShardTreeTest, FoldFollowsTheTree) {
  const std::vector<ShardRange> nodes = {{0, 2}, {2, 3}, {3, 4}, {4, 5}};
  std::vector<std::string> values = {"a", "b", "c", "d"};
  const auto folded =
      fold_nodes(ShardRange{0, 5}, std::span<const ShardRange>(nodes), std::span(values),
                 [](std::string l, std::string r) { return str_cat('(', l, r, ')'); });
  EXPECT_EQ(folded, "((a(bc))d)");
}

TEST(ShardTreeTest, RefusesPartsThatDoNotMakeUpANode) {
  const std::vector<std::vector<ShardRange>> wrong = {
      {}, {{0, 3}, {3, 4}}, {{0, 1}, {2, 3}}, {{0, 2}, {0, 2}}, {{1, 2}, {2, 3}}};
  for (const auto& parts : wrong) EXPECT_THROW(TreeSum(parts, 4), UsageError);
}

TEST(ShardTreeTest, OwnedRangesCoverAllShardsOnce) {
  for (int shards = 1; shards <= 12; ++shards) {
    for (int processes = 1; processes <= shards; ++processes) {
      int next = 0;
      for (int i = 0; i < processes; ++i) {
        const ShardRange range = owned_shards(i, processes, shards);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 1);
        next = range.end;
      }
      EXPECT_EQ(next, shards);
    }
  }
  EXPECT_THROW(owned_shards(0, 3, 2), UsageError);
}

}  // namespace
}  // namespace fleet

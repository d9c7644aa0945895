#include "fluid/tables/merge_rows.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

#include "base/error.h"
#include "base/shard_tree.h"
#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using testing::random_floats;
using testing::random_keys;

struct Owned {
  std::vector<uint64_t> keys;
  std::vector<float> values;
};

// As the tree over all contributors has it, with zeros for rows that are not there.
std::map<uint64_t, std::vector<float>> summed_densely(const std::vector<Owned>& all, size_t width) {
  std::map<uint64_t, std::vector<std::vector<float>>> rows;
  for (size_t c = 0; c < all.size(); ++c) {
    for (size_t i = 0; i < all[c].keys.size(); ++i) {
      auto& of_id = rows[all[c].keys[i]];
      of_id.resize(all.size(), std::vector<float>(width, 0.0f));
      of_id[c].assign(all[c].values.begin() + static_cast<int64_t>(i * width),
                      all[c].values.begin() + static_cast<int64_t>((i + 1) * width));
    }
  }
  std::map<uint64_t, std::vector<float>> sums;
  for (auto& [key, of_id] : rows) {
    std::vector<const float*> arrays;
    for (const auto& one : of_id) arrays.push_back(one.data());
    std::vector<float> sum(width);
    tree_sum(std::span<const float* const>(arrays), sum.data(), width);
    sums[key] = sum;
  }
  return sums;
}

void expect_dense_sums(const std::vector<Owned>& all, size_t width, Tiles tiles = {}) {
  std::vector<ContributedRows> rows;
  rows.reserve(all.size());
  for (const Owned& one : all) rows.push_back({one.keys, one.values.data()});
  MergedRows merged;
  merge_rows(rows, width, merged, tiles);
  const auto sums = summed_densely(all, width);
  ASSERT_EQ(merged.keys.size(), sums.size());
  size_t i = 0;
  for (const auto& [key, sum] : sums) {
    ASSERT_EQ(merged.keys[i], key);
    ASSERT_EQ(std::memcmp(merged.values() + i * width, sum.data(), width * sizeof(float)), 0)
        << "id " << key << " of " << all.size() << " contributors";
    ++i;
  }
}

std::vector<Owned> drawn(uint64_t seed, size_t contributors, size_t rows, int bits, size_t width) {
  std::mt19937_64 random(seed);
  std::vector<Owned> all(contributors);
  for (Owned& one : all) {
    one.keys = random_keys(random, random() % (rows + 1), bits);
    one.values = random_floats(random, one.keys.size() * width);
    for (float& value : one.values) {
      if (random() % 4 == 0) value = random() % 2 == 0 ? -0.0f : 0.0f;
    }
  }
  return all;
}

TEST(MergeRowsTest, HasTheBitsOfTheTreeWithZeros) {
  uint64_t seed = 0;
  for (size_t contributors = 1; contributors < 35; ++contributors) {
    expect_dense_sums(drawn(++seed, contributors, 40, 6, 3), 3);
    expect_dense_sums(drawn(++seed, contributors, 40, 64, 10), 10);
  }
}

TEST(MergeRowsTest, SumsManyRowsOfAnyIds) {
  for (const int bits : {12, 17, 40, 50, 64}) {
    expect_dense_sums(drawn(static_cast<uint64_t>(bits), 13, 3000, bits, 9), 9);
  }
}

TEST(MergeRowsTest, ThreadsChangeNoBit) {
  TilePool pool({.threads = 3, .spins = false});
  expect_dense_sums(drawn(3, 20, 4000, 15, 4), 4, Tiles(&pool));
}

TEST(MergeRowsTest, ThreadsSumTheLastIdsThatThereAre) {
  TilePool pool({.threads = 3, .spins = false});
  // Not all of a power of two: some parts of the range have no ids.
  constexpr uint64_t kRange = 600'000;
  std::vector<Owned> all = drawn(4, 4, 60'000, 20, 2);
  for (Owned& one : all) {
    Owned kept;
    for (size_t i = 0; i < one.keys.size(); ++i) {
      if (one.keys[i] >= kRange) continue;
      kept.keys.push_back(one.keys[i] + (~uint64_t{0} - (kRange - 1)));
      kept.values.insert(kept.values.end(), {one.values[2 * i], one.values[2 * i + 1]});
    }
    one = std::move(kept);
  }
  all[0].keys.back() = ~uint64_t{0};
  expect_dense_sums(all, 2, Tiles(&pool));
}

TEST(MergeRowsTest, IdsOfOneHighHalfAreSorted) {
  std::vector<Owned> all = drawn(5, 9, 3000, 30, 2);
  for (size_t c = 0; c < all.size(); ++c) {
    for (uint64_t& key : all[c].keys) key = key << 20 | 0xfff;
  }
  all[3].keys.push_back(~uint64_t{0});
  all[3].values.insert(all[3].values.end(), {1, 2});
  all[8].keys.push_back(0);
  all[8].values.insert(all[8].values.end(), {3, 4});
  expect_dense_sums(all, 2);
}

TEST(MergeRowsTest, SumsAnIdThatOneContributorHasTwice) {
  const std::vector<uint64_t> keys = {7, 5, 7};
  const std::vector<float> values = {1, 2, 4};
  const std::vector<uint64_t> other = {7};
  const std::vector<float> one = {8};
  const std::vector<ContributedRows> rows = {{keys, values.data()}, {other, one.data()}};
  MergedRows merged;
  merge_rows(rows, 1, merged);
  EXPECT_EQ(merged.keys, std::vector<uint64_t>({5, 7}));
  EXPECT_EQ(merged.values()[0], 2);
  EXPECT_EQ(merged.values()[1], 13);
}

TEST(MergeRowsTest, NoRowsAreNoSum) {
  MergedRows merged;
  merge_rows(std::vector<ContributedRows>(3), 4, merged);
  EXPECT_TRUE(merged.keys.empty());
  EXPECT_THROW(merge_rows({}, 4, merged), UsageError);
  EXPECT_THROW(merge_rows(std::vector<ContributedRows>(3), 0, merged), UsageError);
}

}  // namespace
}  // namespace fleet::fluid::tables

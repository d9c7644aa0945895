#include "fluid/kernels/shard_rows.h"

#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/shard_tree.h"

namespace fleet::fluid {
namespace {

constexpr size_t kWidth = 3;

template <class T>
SelectedRows shard_of(const std::vector<int64_t>& rows, uint64_t seed, int64_t height) {
  std::vector<T> values(rows.size() * kWidth);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t draw = mix64(seed * 1000 + i);
    values[i] = draw % 5 == 0 ? T{-0.0} : static_cast<T>(draw % 2001) / T{7} - T{140};
  }
  return {.rows = rows,
          .height = height,
          .value = Tensor::from(values,
                                {static_cast<int64_t>(rows.size()), static_cast<int64_t>(kWidth)})};
}

// By the definition: rows as dense ones, added up by the tree.
template <class T>
std::map<int64_t, std::vector<T>> dense_sums(const std::vector<SelectedRows>& shards) {
  std::map<int64_t, std::vector<std::vector<T>>> rows;
  for (size_t s = 0; s < shards.size(); ++s) {
    std::map<int64_t, std::vector<T>> own;
    const T* value = shards[s].value.template data<T>();
    for (const int64_t row : shards[s].rows) {
      auto [there, first] = own.try_emplace(row, value, value + kWidth);
      for (size_t i = 0; !first && i < kWidth; ++i) there->second[i] += value[i];
      value += kWidth;
    }
    for (auto& [row, values] : own) {
      auto& all = rows.try_emplace(row, shards.size(), std::vector<T>(kWidth)).first->second;
      all[s] = std::move(values);
    }
  }
  std::map<int64_t, std::vector<T>> sums;
  for (const auto& [row, parts] : rows) {
    std::vector<const T*> arrays;
    for (const auto& part : parts) arrays.push_back(part.data());
    auto& sum = sums[row];
    sum.resize(kWidth);
    tree_sum<T>(arrays, sum.data(), kWidth);
  }
  return sums;
}

template <class T>
void expect_sums(const std::vector<SelectedRows>& shards) {
  const SelectedRows sum = sum_of_rows(shards);
  const auto wanted = dense_sums<T>(shards);
  ASSERT_EQ(sum.rows.size(), wanted.size());
  EXPECT_EQ(sum.height, shards.front().height);
  const T* value = sum.value.template data<T>();
  size_t i = 0;
  for (const auto& [row, values] : wanted) {
    EXPECT_EQ(sum.rows[i++], row);
    EXPECT_EQ(std::memcmp(value, values.data(), kWidth * sizeof(T)), 0) << "row " << row;
    value += kWidth;
  }
}

template <class T>
void expect_sums_of_type() {
  for (const size_t count : {1U, 2U, 3U, 5U, 8U}) {
    std::vector<SelectedRows> shards;
    for (size_t s = 0; s < count; ++s) {
      std::vector<int64_t> rows;
      for (int64_t i = 0; s != 1 && i < 40; ++i) {  // the second has none
        rows.push_back(static_cast<int64_t>(mix64(s * 100 + static_cast<uint64_t>(i)) % 30));
      }
      shards.push_back(shard_of<T>(rows, s, 30));
    }
    expect_sums<T>(shards);
  }
}

TEST(SumOfRows, IsTheSumOfDenseRowsByTheTree) {
  expect_sums_of_type<float>();
  expect_sums_of_type<double>();
}

TEST(SumOfRows, TakesAnyIdsWhereThereIsNoHeight) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kNone = SelectedRows::kNoHeight;
  expect_sums<float>({shard_of<float>({}, 1, kNone),
                      shard_of<float>({7, kLeast, -1, kMost, 7, 0, kLeast}, 2, kNone),
                      shard_of<float>({-1, kMost, -2, 8}, 3, kNone)});
}

TEST(SumOfRows, RefusesRowsOutsideTheHeight) {
  for (const int64_t row : {int64_t{-1}, int64_t{30}}) {
    EXPECT_THROW(sum_of_rows(std::vector{shard_of<float>({row}, 1, 30)}), ProgramError);
    EXPECT_THROW(sum_of_rows(std::vector{shard_of<double>({row}, 1, 30)}), ProgramError);
  }
}

TEST(SumOfRows, MeanIsTheSumByTheShards) {
  const std::vector<SelectedRows> shards = {shard_of<float>({1, 2}, 1, 4),
                                            shard_of<float>({2, 3}, 2, 4)};
  const SelectedRows sum = sum_of_rows(shards);
  const SelectedRows mean = mean_of_rows(shards);
  EXPECT_EQ(mean.rows, sum.rows);
  for (size_t i = 0; i < 3 * kWidth; ++i) {
    EXPECT_EQ(mean.value.data<float>()[i], sum.value.data<float>()[i] * 0.5F);
  }
}

}  // namespace
}  // namespace fleet::fluid

#include "strategies/collective/row_reducer.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "fluid/kernels/shard_rows.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kHeight = 20;
constexpr int64_t kWidth = 3;

// Magnitudes differ widely, so that the order of additions shows; rows come in any order, some
// twice, and some shards have none.
fluid::SelectedRows gradient_of(int shard, size_t number) {
  fluid::SelectedRows rows;
  rows.height = kHeight;
  uint64_t draw = mix64(static_cast<uint64_t>(shard) * 31 + number + 1);
  std::vector<float> values;
  for (uint64_t i = 0; i < draw % 7; ++i) {
    rows.rows.push_back(static_cast<int64_t>(mix64(draw + i) % kHeight));
    for (uint64_t k = 0; k < kWidth; ++k) {
      const uint64_t bits = mix64(draw * 7 + i * 3 + k);
      const auto scale = static_cast<float>(uint64_t{1} << (bits % 20));
      values.push_back((static_cast<float>((bits >> 24) % 1001) - 500.0F) * scale * 1e-3F);
    }
  }
  rows.value =
      fluid::Tensor(fluid::DType::kFloat32, {static_cast<int64_t>(rows.rows.size()), kWidth});
  std::copy(values.begin(), values.end(), rows.value.data<float>());
  return rows;
}

std::vector<float> values_of(const fluid::SelectedRows& rows) {
  return {rows.value.values<float>().begin(), rows.value.values<float>().end()};
}

// Every rank's sums of `gradients` gradients, `times` steps; ranks in `absent` give nothing.
std::vector<std::vector<fluid::SelectedRows>> reduce(int ranks, int shards, size_t gradients,
                                                     const std::vector<int>& absent = {}) {
  transport::InProcessGroup group(ranks);
  std::vector<std::vector<fluid::SelectedRows>> results(static_cast<size_t>(ranks));
  std::vector<std::jthread> threads;
  threads.reserve(results.size());
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = group.member(rank);
      const transport::ShardLayout layout(ranks, shards);
      RowReducer reducer(*communicator, layout, {});
      for (uint64_t step = 0; step < 2; ++step) {
        if (std::find(absent.begin(), absent.end(), rank) != absent.end()) {
          reducer.give_nothing(gradients, step);
          continue;
        }
        reducer.begin_step(step);
        const ShardRange own = layout.range(rank);
        std::vector<fluid::Value> values(gradients);
        for (int shard = own.begin; shard < own.end; ++shard) {
          for (size_t i = 0; i < gradients; ++i) {
            reducer.add(shard - own.begin, gradient_of(shard, i), values[i]);
          }
        }
        EXPECT_TRUE(reducer.pending());
        reducer.finish(1.0);
        EXPECT_FALSE(reducer.pending());
        auto& result = results[static_cast<size_t>(rank)];
        result.clear();
        for (auto& value : values) result.push_back(std::get<fluid::SelectedRows>(value));
      }
    });
  }
  threads.clear();
  return results;
}

std::vector<fluid::SelectedRows> shards_of(int shards, size_t number) {
  std::vector<fluid::SelectedRows> all;
  all.reserve(static_cast<size_t>(shards));
  for (int shard = 0; shard < shards; ++shard) all.push_back(gradient_of(shard, number));
  return all;
}

TEST(RowReducer, GivesEveryRankTheSumOverTheTree) {
  for (const auto& [ranks, shards] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 5}, {2, 2}, {2, 3}, {3, 8}, {4, 7}}) {
    const auto results = reduce(ranks, shards, 3);
    for (const auto& result : results) {
      ASSERT_EQ(result.size(), 3U);
      for (size_t i = 0; i < 3; ++i) {
        const auto wanted = fluid::sum_of_rows(shards_of(shards, i));
        EXPECT_EQ(result[i].rows, wanted.rows);
        EXPECT_EQ(result[i].height, kHeight);
        EXPECT_EQ(values_of(result[i]), values_of(wanted)) << ranks << " ranks, " << shards;
      }
    }
  }
}

TEST(RowReducer, RanksThatGiveNothingCountAsZeros) {
  const auto results = reduce(3, 4, 2, {1});
  EXPECT_THAT(results[1], IsEmpty());
  for (size_t i = 0; i < 2; ++i) {
    auto shards = shards_of(4, i);
    shards[2].rows.clear();  // rank 1 has shard 2
    shards[2].value = fluid::Tensor(fluid::DType::kFloat32, {0, kWidth});
    const auto wanted = fluid::sum_of_rows(shards);
    for (const size_t rank : {0U, 2U}) {
      EXPECT_EQ(results[rank][i].rows, wanted.rows);
      EXPECT_EQ(values_of(results[rank][i]), values_of(wanted));
    }
  }
}

// Numbers travel as distances, in as many bytes as they need.
TEST(RowReducer, RowNumbersOfAnySizeArrive) {
  const std::vector<std::vector<int64_t>> rows = {
      {0, 1, 128, 255, 256, 16384 + 256, int64_t{1} << 40, (int64_t{1} << 62) - 1},
      {},
      {(int64_t{1} << 62) - 2}};
  transport::InProcessGroup group(3);
  std::vector<fluid::SelectedRows> results(3);
  std::vector<std::jthread> threads;
  threads.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank, own = rows[static_cast<size_t>(rank)]] {
      const auto communicator = group.member(rank);
      const transport::ShardLayout layout(3, 3);
      RowReducer reducer(*communicator, layout, {});
      reducer.begin_step(0);
      fluid::Value out;
      const auto count = static_cast<int64_t>(own.size());
      reducer.add(0,
                  {.rows = own,
                   .height = int64_t{1} << 62,
                   .value = fluid::Tensor::zeros(fluid::DType::kFloat32, {count, 1})},
                  out);
      reducer.finish(1.0);
      results[static_cast<size_t>(rank)] = std::get<fluid::SelectedRows>(out);
    });
  }
  threads.clear();
  auto all = rows[0];
  all.insert(all.end() - 1, rows[2][0]);
  for (const auto& result : results) EXPECT_EQ(result.rows, all);
}

TEST(RowReducer, RefusesAShardWithMoreGradients) {
  transport::InProcessGroup group(1);
  const auto communicator = group.member(0);
  const transport::ShardLayout layout(1, 2);
  RowReducer reducer(*communicator, layout, {});
  reducer.begin_step(0);
  fluid::Value out;
  reducer.add(0, gradient_of(0, 0), out);
  reducer.add(1, gradient_of(1, 0), out);
  EXPECT_THROW(reducer.add(1, gradient_of(1, 1), out), ProgramError);
}

}  // namespace
}  // namespace fleet::strategies

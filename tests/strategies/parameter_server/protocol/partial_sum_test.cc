#include "strategies/parameter_server/protocol/partial_sum.h"

#include <cstring>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/protocol/contributors.h"

namespace fleet::strategies {
namespace {

std::vector<float> gradient(int shard) {
  return {static_cast<float>(shard) * 1e4F + 0.1F, 1.0F / static_cast<float>(shard + 3)};
}

const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(PartialSums, MakesTheTreesSumsForEveryDivisionOfShards) {
  for (int shards = 1; shards <= 9; ++shards) {
    std::vector<std::vector<float>> gradients;
    std::vector<const float*> arrays;
    for (int s = 0; s < shards; ++s) gradients.push_back(gradient(s));
    for (const auto& g : gradients) arrays.push_back(g.data());
    std::vector<float> whole(2);
    tree_sum<float>(std::span<const float* const>(arrays), whole.data(), 2);

    for (int workers = 1; workers <= shards; ++workers) {
      SCOPED_TRACE(str_cat(workers, " workers, ", shards, " shards"));
      std::vector<ShardRange> parts;
      std::vector<std::vector<float>> sums;
      for (int worker = 0; worker < workers; ++worker) {
        const ShardRange own = owned_shards(worker, workers, shards);
        PartialSums partial(maximal_nodes(own, shards), shards, fluid::DType::kFloat32, 8);
        // A second step leaves no trace of the first one.
        for (int round = 0; round < 2; ++round) {
          parts.resize(parts.size() - (round == 0 ? 0 : maximal_nodes(own, shards).size()));
          sums.resize(parts.size());
          for (int s = own.begin; s < own.end; ++s) {
            const auto ready = partial.add(s, bytes_of(gradients[static_cast<size_t>(s)]));
            if (!ready) continue;
            parts.push_back(ready->node);
            sums.emplace_back(2);
            std::memcpy(sums.back().data(), ready->sum, 8);
          }
        }
      }
      const TreeSum rest(parts, shards);
      std::vector<const float*> inputs;
      for (const auto& sum : sums) inputs.push_back(sum.data());
      std::vector<float> result(2);
      rest(std::span<const float* const>(inputs), result.data(), 2);
      EXPECT_EQ(std::memcmp(result.data(), whole.data(), 8), 0);
    }
  }
}

TEST(PartialSums, SendsTheGradientItselfWhenThereIsNothingToAdd) {
  PartialSums partial({{2, 3}}, 4, fluid::DType::kFloat32, 8);
  const auto values = gradient(2);
  const auto ready = partial.add(2, bytes_of(values));
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->sum, bytes_of(values));
}

TEST(PartialSums, KeepsSingleShardsWhenTheWorkerHasMore) {
  // The gradient's memory is used again for the next shard.
  PartialSums partial({{2, 3}, {3, 4}}, 5, fluid::DType::kFloat32, 8);
  auto values = gradient(2);
  const auto ready = partial.add(2, bytes_of(values));
  ASSERT_TRUE(ready.has_value());
  EXPECT_NE(ready->sum, bytes_of(values));
}

TEST(PartialSums, RefusesShardsOutOfTurn) {
  PartialSums partial({{0, 4}}, 4, fluid::DType::kFloat32, 8);
  const auto values = gradient(0);
  (void)partial.add(0, bytes_of(values));
  EXPECT_THROW(partial.add(2, bytes_of(values)), UsageError);
  EXPECT_THROW(partial.add(7, bytes_of(values)), UsageError);
}

TEST(ContributorTable, FindsOnlyTheNodesThatWorkersSend) {
  const ContributorTable table(3, 5);  // {0, 1}, {2, 3}, {4}
  EXPECT_EQ(table.size(), 3U);
  EXPECT_EQ(table.find(0, 2), 0);
  EXPECT_EQ(table.find(2, 4), 1);
  EXPECT_EQ(table.find(4, 5), 2);
  EXPECT_EQ(table.find(0, 1), -1);
  EXPECT_EQ(table.find(1, 2), -1);
  EXPECT_EQ(table.find(0, 4), -1);
  EXPECT_EQ(table.find(uint64_t{1} << 40, 5), -1);
  EXPECT_EQ(table[1].worker, 1U);
  EXPECT_EQ(table.first_of(2), 2U);
  EXPECT_EQ(table.last_of(2), 3U);
}

}  // namespace
}  // namespace fleet::strategies

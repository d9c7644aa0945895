#include "transport/nccl/additions.h"

#include <gtest/gtest.h>

#include "tests/transport/collective/reference.h"

namespace fleet::transport {
namespace {

using namespace testing_reference;  // NOLINT: the helpers of that folder

TEST(Additions, AreThoseOfTheTreeForAnyRanksAndShards) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int shards = ranks; shards <= 40; ++shards) {
      const ShardLayout layout(ranks, shards);
      std::vector<ShardRange> nodes;
      std::vector<float> values;
      std::vector<const float*> arrays;
      for (int rank = 0; rank < ranks; ++rank) {
        for (const ShardRange& node : layout.nodes(rank)) {
          nodes.push_back(node);
          values.push_back(shard_values<float>(static_cast<int>(values.size()), 1).front());
        }
      }
      arrays.reserve(values.size());
      for (const float& value : values) arrays.push_back(&value);
      float expected = 0;
      layout.sum()(std::span<const float* const>(arrays), &expected, 1);
      float slots[kAdditionSlots] = {};
      const auto operand = [&](int32_t id) {
        return id < 0 ? slots[~id] : values[static_cast<size_t>(id)];
      };
      float sum = values.front();
      for (const Addition& add : additions_of(nodes)) {
        ASSERT_LT(add.slot, kAdditionSlots);
        sum = slots[add.slot] = operand(add.left) + operand(add.right);
      }
      EXPECT_EQ(sum, expected) << ranks << " ranks, " << shards << " shards";
    }
  }
}

TEST(Additions, OfNodesThatAreNoTreeAreRefused) {
  const ShardRange apart[] = {{0, 1}, {2, 3}};
  EXPECT_THROW((void)additions_of(apart), UsageError);
  EXPECT_THROW((void)additions_of({}), UsageError);
}

}  // namespace
}  // namespace fleet::transport

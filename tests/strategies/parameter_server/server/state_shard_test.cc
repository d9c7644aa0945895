#include "strategies/parameter_server/server/state_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace fleet::strategies {
namespace {

using testing::ElementsAre;

std::vector<float> values_of(const fluid::Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

// value -= gradient; moment += gradient
class ShardFixture : public testing::Test {
 protected:
  ShardFixture()
      : shard_((add("w", {1, 2}), add("w@GRAD", {0, 0}), add("moment", {5, 5}),
                StateShardSpec{"w", "w@GRAD", {"moment"}}),
               scope_, [this](const StepUpdate&) { update(); }) {}

  fluid::Tensor& add(const char* name, const std::vector<float>& values) {
    return scope_.var(name).emplace<fluid::Tensor>(
        fluid::Tensor::from(values, {static_cast<int64_t>(values.size())}));
  }
  void update() {
    for (int i = 0; i < 2; ++i) {
      const float gradient = scope_.tensor("w@GRAD").data<float>()[i];
      scope_.tensor("w").data<float>()[i] -= gradient;
      scope_.tensor("moment").data<float>()[i] += gradient;
    }
  }
  void step(uint64_t number, float gradient) {
    for (int i = 0; i < 2; ++i)
      std::get<fluid::Tensor>(shard_.gradient()).data<float>()[i] = gradient;
    shard_.apply({number, 1});
  }

  fluid::Scope scope_;
  StateShard shard_;
};

TEST_F(ShardFixture, UpdatesInPlaceWhenNobodyReads) {
  const std::byte* memory = scope_.tensor("w").raw();
  step(1, 1);
  step(2, 1);
  EXPECT_EQ(scope_.tensor("w").raw(), memory);
  EXPECT_THAT(values_of(shard_.read()), ElementsAre(-1, 0));
}

TEST_F(ShardFixture, LeavesAPinnedVersionAsItWas) {
  const fluid::Tensor before = shard_.read();
  step(1, 1);
  const fluid::Tensor after = shard_.read();
  step(2, 1);
  EXPECT_THAT(values_of(before), ElementsAre(1, 2));
  EXPECT_THAT(values_of(after), ElementsAre(0, 1));
  EXPECT_THAT(values_of(shard_.read()), ElementsAre(-1, 0));
}

TEST_F(ShardFixture, UsesItsSpareAgainOnceNobodyReadsIt) {
  const std::byte* first = scope_.tensor("w").raw();
  {
    const fluid::Tensor pinned = shard_.read();
    step(1, 1);
    EXPECT_NE(scope_.tensor("w").raw(), first);
  }
  const fluid::Tensor pinned = shard_.read();
  step(2, 1);
  EXPECT_EQ(scope_.tensor("w").raw(), first);
}

}  // namespace
}  // namespace fleet::strategies

// Steps with sequences in logical shards.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/executor/shards/shard_feeds_impl.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> values_of(const Tensor& tensor) {
  return {tensor.values<int64_t>().begin(), tensor.values<int64_t>().end()};
}

Tensor numbers(int64_t count, LoD lod) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(i);
  Tensor tensor = Tensor::from(values, {count, 1});
  tensor.set_lod(std::move(lod));
  return tensor;
}

TEST(ShardFeeds, CutRowsWhereThereAreNoSequences) {
  const Tensor fed = numbers(6, {});
  EXPECT_EQ(samples_of(fed), 6);
  EXPECT_THAT(values_of(part_of_feed(fed, 1, 3)), ElementsAre(2, 3));
}

TEST(ShardFeeds, CutBetweenSequences) {
  const Tensor fed = numbers(9, {{0, 4, 5, 7, 9}});
  EXPECT_EQ(samples_of(fed), 4);
  const Tensor first = part_of_feed(fed, 0, 2);
  EXPECT_THAT(values_of(first), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(first.lod(), (LoD{{0, 4, 5}}));
  const Tensor second = part_of_feed(fed, 1, 2);
  EXPECT_THAT(values_of(second), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(second.lod(), (LoD{{0, 2, 4}}));
  const Tensor joined = join_rows({first, second});
  EXPECT_EQ(values_of(joined), values_of(fed));
  EXPECT_EQ(joined.lod(), fed.lod());
}

TEST(ShardFeeds, CutBetweenOutermostSequences) {
  const Tensor fed = numbers(9, {{0, 1, 4}, {0, 3, 4, 4, 9}});
  const Tensor second = part_of_feed(fed, 1, 2);
  EXPECT_THAT(values_of(second), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(second.lod(), (LoD{{0, 3}, {0, 1, 1, 6}}));
  EXPECT_EQ(join_rows({part_of_feed(fed, 0, 2), second}).lod(), fed.lod());
}

// Words of sequences of different lengths; the loss is a mean over sequences.
class SequenceNet {
 public:
  SequenceNet() {
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    startup.set_random_seed(5);
    const auto ids = layers::data("ids", {1}, DType::kInt64, {.lod_level = 1});
    const auto label = layers::data("label", {1}, DType::kInt64);
    const auto words = layers::embedding(ids, {20, 6}, {.is_sparse = true});
    const auto pooled = layers::sequence_pool(words, "sum");
    const auto prediction = layers::fc(pooled, 3, {.act = "softmax"});
    const auto cost = layers::mean(layers::cross_entropy(prediction, label));
    optimizer::SGD({.learning_rate = 0.2}).minimize(cost);
    loss = cost.name();
  }

  static Feed feed(int step, int sequences) {
    std::vector<int64_t> ids;
    std::vector<int64_t> label;
    LoD lod{{0}};
    for (int i = 0; i < sequences; ++i) {
      for (int k = 0; k <= (step + 3 * i) % 4; ++k) ids.push_back((step * 7 + i * 5 + k * 3) % 20);
      lod[0].push_back(static_cast<int64_t>(ids.size()));
      label.push_back((step + i) % 3);
    }
    Tensor words = Tensor::from(ids, {static_cast<int64_t>(ids.size()), 1});
    words.set_lod(std::move(lod));
    return {{"ids", words}, {"label", Tensor::from(label, {sequences, 1})}};
  }

  std::vector<float> train(int shards) const {
    Executor executor(CPUPlace(), {.logical_shards = shards});
    executor.run(startup);
    std::vector<float> losses;
    losses.reserve(12);
    for (int step = 0; step < 12; ++step) {
      losses.push_back(executor.run(main, feed(step, 8), {loss})[0].item<float>());
    }
    return losses;
  }

  Program main;
  Program startup;
  std::string loss;
};

TEST(ShardFeeds, StepsOfSequencesAgreeWhateverTheirShards) {
  const SequenceNet net;
  const auto one = net.train(1);
  for (const int shards : {2, 4, 8}) {
    const auto several = net.train(shards);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(several[i], one[i], 1e-5) << shards;
  }
}

TEST(ShardFeeds, SequencesMustDivide) {
  const SequenceNet net;
  Executor executor(CPUPlace(), {.logical_shards = 4});
  executor.run(net.startup);
  try {
    executor.run(net.main, SequenceNet::feed(0, 6));
    FAIL() << "6 sequences do not divide into 4 shards";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a multiple of 4 sequences, such as 4 or 8"));
  }
}

}  // namespace
}  // namespace fleet::fluid

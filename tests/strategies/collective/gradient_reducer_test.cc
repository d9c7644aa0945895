#include "strategies/collective/gradient_reducer.h"

#include <cstring>
#include <gmock/gmock.h>
#include <thread>

#include "base/error.h"
#include "base/numbers/half.h"
#include "base/philox.h"
#include "base/shard_tree.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using ::testing::HasSubstr;
using transport::CollectiveCommunicator;
using transport::ElementType;
using transport::ShardLayout;

template <class Body>
void run_ranks(int ranks, const Body& body) {
  transport::InProcessGroup group(ranks);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&body, member = std::shared_ptr(group.member(rank))] { body(*member); });
  }
}

float value(uint64_t step, size_t gradient, int shard, size_t i) {
  const RandomKey key{static_cast<uint32_t>(step), static_cast<uint32_t>(gradient)};
  return uniform_float(key, i, static_cast<uint64_t>(shard)) - 0.5f;
}

std::vector<float> gradient_of(uint64_t step, size_t gradient, int shard, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value(step, gradient, shard, i);
  return values;
}

std::vector<float> local_sum(uint64_t step, size_t gradient, int shards, size_t count) {
  std::vector<std::vector<float>> values;
  std::vector<const float*> arrays;
  values.reserve(static_cast<size_t>(shards));
  arrays.reserve(static_cast<size_t>(shards));
  for (int s = 0; s < shards; ++s) values.push_back(gradient_of(step, gradient, s, count));
  for (const auto& array : values) arrays.push_back(array.data());
  std::vector<float> sum(count);
  tree_sum(std::span<const float* const>(arrays), sum.data(), count);
  return sum;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One step as an executor runs it: every shard's gradients into the same memory, shard by shard.
void run_step(GradientReducer& reducer, const ShardLayout& layout, int rank, uint64_t step,
              const std::vector<size_t>& sizes, std::vector<std::vector<float>>& memory) {
  memory.resize(sizes.size());
  reducer.begin_step(step);
  const ShardRange own = layout.range(rank);
  for (int shard = own.begin; shard < own.end; ++shard) {
    for (size_t g = 0; g < sizes.size(); ++g) {
      memory[g] = gradient_of(step, g, shard, sizes[g]);
      reducer.add(shard - own.begin, ElementType::kFloat32, memory[g].data(), memory[g].data(),
                  sizes[g]);
    }
  }
}

TEST(GradientReducerTest, HasTheBitsOfALocalRunForEveryClusterAndBucketSize) {
  const std::vector<size_t> sizes = {3, 1000, 0, 17, 300, 1, 64};
  for (const size_t bucket : {1, 100, 1300, 1 << 20}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int shards = ranks; shards <= ranks + 5; ++shards) {
        const ShardLayout layout(ranks, shards);
        run_ranks(ranks, [&](CollectiveCommunicator& comm) {
          GradientReducer reducer(comm, layout, {.bucket_bytes = bucket});
          std::vector<std::vector<float>> memory;
          for (uint64_t step = 0; step < 3; ++step) {
            run_step(reducer, layout, comm.rank(), step, sizes, memory);
            reducer.finish();
            for (size_t g = 0; g < sizes.size(); ++g) {
              EXPECT_TRUE(same_bits(memory[g], local_sum(step, g, shards, sizes[g])))
                  << "gradient " << g << ", " << ranks << " ranks, " << shards << " shards";
            }
          }
        });
      }
    }
  }
}

std::vector<float> rounded(std::vector<float> values, ElementType wire) {
  std::vector<uint16_t> words(values.size());
  if (wire == ElementType::kFloat16) {
    float16_of_float(values.data(), words.data(), values.size());
    float_of_float16(words.data(), values.data(), values.size());
  } else {
    bfloat16_of_float(values.data(), words.data(), values.size());
    float_of_bfloat16(words.data(), values.data(), values.size());
  }
  return values;
}

TEST(GradientReducerTest, GradientsMayTravelInHalfTheBytes) {
  const std::vector<size_t> sizes = {3, 1000, 0, 17, 300};
  for (const ElementType wire : {ElementType::kFloat16, ElementType::kBFloat16}) {
    for (const size_t bucket : {1, 1300, 1 << 20}) {
      for (const int ranks : {1, 2, 4}) {
        const ShardLayout layout(ranks, ranks);
        run_ranks(ranks, [&](CollectiveCommunicator& comm) {
          GradientReducer reducer(comm, layout, {.bucket_bytes = bucket, .wire = wire});
          std::vector<std::vector<float>> memory;
          run_step(reducer, layout, comm.rank(), 1, sizes, memory);
          reducer.finish();
          for (const ReductionShape& shape : reducer.shapes()) EXPECT_EQ(shape.type, wire);
          for (size_t g = 0; g < sizes.size(); ++g) {
            std::vector<std::vector<float>> parts;
            parts.reserve(static_cast<size_t>(ranks));
            for (int shard = 0; shard < ranks; ++shard) {
              parts.push_back(rounded(gradient_of(1, g, shard, sizes[g]), wire));
            }
            std::vector<const float*> arrays;
            arrays.reserve(parts.size());
            for (const auto& part : parts) arrays.push_back(part.data());
            std::vector<float> sum(sizes[g]);
            tree_sum<float>(arrays, sum.data(), sum.size());
            EXPECT_TRUE(same_bits(memory[g], rounded(sum, wire)))
                << "gradient " << g << ", " << ranks << " ranks, buckets of " << bucket;
          }
        });
      }
    }
  }
}

TEST(GradientReducerTest, BucketsStartWhileBackwardStillRuns) {
  const ShardLayout layout(2, 2);
  run_ranks(2, [&](CollectiveCommunicator& comm) {
    GradientReducer reducer(comm, layout, {.bucket_bytes = 400});
    std::vector<std::vector<float>> memory;
    run_step(reducer, layout, comm.rank(), 0, {50, 50, 10, 500, 20}, memory);
    // The first two fill a bucket; 10 is cut off by the large one, which is full alone.
    EXPECT_EQ(reducer.started_buckets(), 3u);
    reducer.finish();
    EXPECT_EQ(reducer.started_buckets(), 4u);
  });
}

TEST(GradientReducerTest, OneGradientCanBeWaitedFor) {
  const ShardLayout layout(2, 4);
  run_ranks(2, [&](CollectiveCommunicator& comm) {
    GradientReducer reducer(comm, layout, {.bucket_bytes = 400});
    std::vector<std::vector<float>> memory;
    run_step(reducer, layout, comm.rank(), 5, {150, 20}, memory);
    reducer.wait(1);
    EXPECT_TRUE(same_bits(memory[1], local_sum(5, 1, 4, 20)));
    EXPECT_TRUE(reducer.test(1));
    reducer.finish();
    EXPECT_TRUE(same_bits(memory[0], local_sum(5, 0, 4, 150)));
  });
}

TEST(GradientReducerTest, TypesDoNotShareABucket) {
  const ShardLayout layout(2, 3);
  run_ranks(2, [&](CollectiveCommunicator& comm) {
    GradientReducer reducer(comm, layout);
    reducer.begin_step(0);
    float a = 0;
    double b = 0;
    int64_t c = 0;
    const ShardRange own = layout.range(comm.rank());
    for (int local = 0; local < own.size(); ++local) {
      a = 1.5f;
      b = 2.5;
      c = 7;
      reducer.add(local, ElementType::kFloat32, &a, &a, 1);
      reducer.add(local, ElementType::kFloat64, &b, &b, 1);
      reducer.add(local, ElementType::kInt64, &c, &c, 1);
    }
    reducer.finish();
    EXPECT_EQ(reducer.started_buckets(), 3u);
    EXPECT_EQ(a, 4.5f);
    EXPECT_EQ(b, 7.5);
    EXPECT_EQ(c, 21);
  });
}

TEST(GradientReducerTest, ShardsWithDifferentGradientsAreRefused) {
  const ShardLayout layout(1, 2);
  const auto comm = transport::single_communicator();
  GradientReducer reducer(*comm, layout);
  std::vector<float> memory(4);
  const auto add = [&](int shard, size_t count) {
    reducer.add(shard, ElementType::kFloat32, memory.data(), memory.data(), count);
  };
  reducer.begin_step(0);
  add(0, 4);
  EXPECT_THROW(add(1, 3), ProgramError);
  reducer.begin_step(1);
  add(0, 4);
  add(1, 4);
  EXPECT_THROW(add(1, 4), ProgramError);
}

TEST(GradientReducerTest, ARankThatDoesNotComeIsNamedWithPhaseAndStep) {
  transport::InProcessGroup group(2);
  const auto here = group.member(0);
  const auto absent = group.member(1);
  const ShardLayout layout(2, 2);
  GradientReducer reducer(*here, layout, {.timeout = std::chrono::milliseconds(1)});
  float gradient = 1;
  reducer.begin_step(12);
  reducer.add(0, ElementType::kFloat32, &gradient, &gradient, 1);
  try {
    reducer.finish();
    ADD_FAILURE() << "no error";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("backward, step 12"));
  }
}

}  // namespace
}  // namespace fleet::strategies

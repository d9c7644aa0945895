#include "fluid/data/sampler.h"

#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "base/error.h"

namespace fleet::fluid::data {
namespace {

TEST(Permutation, NamesEveryNumberOnce) {
  for (const int64_t n : {1, 2, 3, 7, 64, 1000, 1297}) {
    const Permutation order(RandomKey::of(3, "x"), n, 5);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < n; ++i) seen.insert(order(i));
    EXPECT_EQ(seen.size(), static_cast<size_t>(n)) << n;
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
}

TEST(Permutation, DiffersBetweenEpochsAndLooksRandom) {
  constexpr int64_t kRows = 4096;
  const RandomKey key = RandomKey::of(1, "x");
  const Permutation first(key, kRows, 0);
  const Permutation second(key, kRows, 1);
  int same = 0;
  double correlation = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    same += first(i) == second(i);
    correlation +=
        (static_cast<double>(i) - kRows / 2.0) * (static_cast<double>(first(i)) - kRows / 2.0);
  }
  EXPECT_LT(same, 10);
  // Of a random order the coefficient has a standard deviation of 1/sqrt(n) = 0.016.
  EXPECT_LT(std::abs(correlation / (kRows * (kRows * double{kRows} / 12))), 0.08);
}

TEST(Sampler, PartsOfAllWorkersAreTheStepOfOne) {
  for (const int workers : {1, 2, 3, 4}) {
    SamplerOptions options{.rows = 103, .batch_size = 24, .seed = 7, .shards = 4};
    const Sampler whole(options);
    for (const int64_t position : {0, 3, 4, 17}) {
      std::vector<int64_t> joined;
      options.workers = workers;
      for (options.worker = 0; options.worker < workers; ++options.worker) {
        const auto part = Sampler(options).rows_of(position);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole.rows_of(position)) << workers << " workers, step " << position;
    }
  }
}

TEST(Sampler, AnEpochReadsEveryRowOnce) {
  const Sampler sampler({.rows = 100, .batch_size = 16, .seed = 2, .last = LastBatch::kKeep});
  ASSERT_EQ(sampler.steps_per_epoch(), 7);
  for (const int64_t epoch : {0, 1}) {
    std::multiset<int64_t> seen;
    for (int64_t step = 0; step < 7; ++step) {
      const auto rows = sampler.rows_of(epoch * 7 + step);
      seen.insert(rows.begin(), rows.end());
    }
    EXPECT_EQ(seen.size(), 100u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 100u);
  }
}

TEST(Sampler, LastBatchIsDroppedOrFilled) {
  const Sampler drop({.rows = 10, .batch_size = 4, .shuffle = false});
  EXPECT_EQ(drop.steps_per_epoch(), 2);
  EXPECT_EQ(drop.rows_of(2), (std::vector<int64_t>{0, 1, 2, 3}));
  const Sampler fill({.rows = 10, .batch_size = 4, .shuffle = false, .last = LastBatch::kFill});
  EXPECT_EQ(fill.steps_per_epoch(), 3);
  EXPECT_EQ(fill.rows_of(2), (std::vector<int64_t>{8, 9, 0, 1}));
}

void expect_refused(const SamplerOptions& options, const std::string& field) {
  try {
    const Sampler sampler(options);
    ADD_FAILURE() << "accepted a wrong " << field;
  } catch (const UsageError& error) {
    EXPECT_EQ(error.text().where, "SamplerOptions." + field);
  }
}

TEST(Sampler, NamesTheWrongField) {
  expect_refused({.rows = 0}, "rows");
  expect_refused({.rows = 4, .batch_size = 8}, "batch_size");
  expect_refused({.rows = 40, .batch_size = 9, .workers = 2}, "batch_size");
  expect_refused({.rows = 4, .worker = 2, .workers = 2}, "worker");
  expect_refused({.rows = 4, .workers = 0}, "workers");
  expect_refused({.rows = 4, .workers = 4, .shards = 2}, "shards");
}

}  // namespace
}  // namespace fleet::fluid::data

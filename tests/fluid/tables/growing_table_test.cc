#include "fluid/tables/growing_table.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using namespace testing;

std::vector<float> lookup(GrowingTable& table, const std::vector<uint64_t>& keys,
                          Tiles tiles = {}) {
  std::vector<float> values(keys.size() * table.options().width);
  table.rows(keys, values.data(), tiles);
  return values;
}
std::vector<float> found(const GrowingTable& table, const std::vector<uint64_t>& keys,
                         GrowingTable::Missing missing = GrowingTable::Missing::kInitial) {
  std::vector<float> values(keys.size() * table.options().width);
  table.find(keys, values.data(), missing);
  return values;
}

TEST(GrowingTableTest, TrainingMakesRowsAndTestsDoNot) {
  GrowingTable table(sample_options());
  const std::vector<uint64_t> keys = awkward_keys();
  const std::vector<float> first = found(table, keys);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(lookup(table, keys), first);
  EXPECT_EQ(table.size(), keys.size());
  EXPECT_EQ(found(table, keys, GrowingTable::Missing::kZero), first);
  EXPECT_EQ(found(table, {123456789}, GrowingTable::Missing::kZero), std::vector<float>(5, 0));
  const TableStatistics now = table.statistics();
  EXPECT_EQ(now.misses, keys.size());
  EXPECT_EQ(now.admitted, keys.size());
  EXPECT_EQ(now.hits, 0U);
  lookup(table, keys);
  EXPECT_EQ(table.statistics().hits, keys.size());
}

TEST(GrowingTableTest, RowsStartFromTheSameBitsInAnyOrderAndAnyTable) {
  for (const RowInitializer& from :
       {RowInitializer::constant(0.25), RowInitializer::uniform(-2, 3),
        RowInitializer::normal(1, 2), RowInitializer::truncated_normal(0, 0.5),
        RowInitializer::xavier_uniform(1000, 5), RowInitializer::xavier_normal(1000, 5)}) {
    TableOptions options = sample_options();
    options.initializer = from;
    GrowingTable forward(options);
    GrowingTable backward(options);
    std::mt19937_64 random(4);
    std::vector<uint64_t> keys = random_keys(random, 3000, 64);
    lookup(forward, keys);
    std::reverse(keys.begin(), keys.end());
    for (size_t i = 0; i < keys.size(); i += 7) {
      lookup(backward, {keys.begin() + static_cast<int64_t>(i),
                        keys.begin() + static_cast<int64_t>(std::min(i + 7, keys.size()))});
    }
    EXPECT_EQ(contents(forward), contents(backward));
    options.seed = 8;
    GrowingTable other(options);
    const bool constant = from.kind == RowInitializer::Kind::kConstant;
    EXPECT_EQ(lookup(other, keys) == found(forward, keys), constant);
  }
}

TEST(GrowingTableTest, InitialValuesAreOfTheirDistribution) {
  const auto moments = [](const RowInitializer& from) {
    TableOptions options = sample_options();
    options.initializer = from;
    GrowingTable table(options);
    std::vector<uint64_t> keys(20000);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
    double sum = 0;
    double squares = 0;
    const std::vector<float> values = found(table, keys);
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto n = static_cast<double>(values.size());
    return std::pair{sum / n, squares / n - sum / n * (sum / n)};
  };
  const auto [uniform, uniform_variance] = moments(RowInitializer::uniform(-1, 3));
  EXPECT_NEAR(uniform, 1, 0.02);
  EXPECT_NEAR(uniform_variance, 16.0 / 12, 0.02);
  const auto [normal, normal_variance] = moments(RowInitializer::normal(2, 0.5));
  EXPECT_NEAR(normal, 2, 0.01);
  EXPECT_NEAR(normal_variance, 0.25, 0.01);
  const auto [truncated, truncated_variance] = moments(RowInitializer::truncated_normal(0, 1));
  EXPECT_NEAR(truncated, 0, 0.02);
  EXPECT_NEAR(truncated_variance, 0.774, 0.02);
}

TEST(GrowingTableTest, BothWaysToUpdateGiveTheSameBits) {
  GrowingTable blocks(sample_options());
  GrowingTable in_place(sample_options());
  std::mt19937_64 random(5);
  const SampleUpdate update = sample_update();
  PlainTable plain;
  const std::vector<uint64_t> all = random_keys(random, 5000, 20);
  for (int step = 0; step < 20; ++step) {
    std::vector<uint64_t> keys = all;
    std::shuffle(keys.begin(), keys.end(), random);
    keys.resize(random() % 3000);
    const std::vector<float> gradients = random_floats(random, keys.size() * 5);
    for (size_t i = 0; i < keys.size(); ++i) {
      PlainRow& row = plain[keys[i]];
      if (row.values.empty()) {
        row.values = found(blocks, {keys[i]});
        row.states = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0};
      }
      row.seen = static_cast<uint32_t>(step);
      update.one(row.values.data(), {row.states.data(), row.states.data() + 5},
                 gradients.data() + i * 5);
    }
    blocks.set_clock(static_cast<uint32_t>(step));
    in_place.set_clock(static_cast<uint32_t>(step));
    blocks.apply(keys, gradients.data(), static_cast<const BlockUpdate&>(update));
    in_place.apply(keys, gradients.data(), static_cast<const InPlaceUpdate&>(update));
    ASSERT_EQ(contents(blocks), plain);
    ASSERT_EQ(contents(in_place), plain);
  }
}

TEST(GrowingTableTest, ThreadsChangeNoBit) {
  TilePool pool({.threads = 3, .spins = false});
  GrowingTable alone(sample_options());
  GrowingTable shared(sample_options());
  const SampleUpdate update = sample_update();
  const auto& blocks = static_cast<const BlockUpdate&>(update);
  std::mt19937_64 random(6);
  for (int step = 0; step < 10; ++step) {
    const std::vector<uint64_t> keys = random_keys(random, 4000, 14);
    const std::vector<float> gradients = random_floats(random, keys.size() * 5);
    ASSERT_EQ(lookup(alone, keys), lookup(shared, keys, Tiles(&pool)));
    alone.apply(keys, gradients.data(), blocks);
    shared.apply(keys, gradients.data(), blocks, Tiles(&pool));
    ASSERT_EQ(contents(alone), contents(shared));
    std::vector<float> values(keys.size() * 5);
    shared.find(keys, values.data(), GrowingTable::Missing::kZero, Tiles(&pool));
    ASSERT_EQ(values, found(alone, keys));
  }
}

TEST(GrowingTableTest, AProbabilityAdmitsTheSameIdsEverywhere) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kProbability, .probability = 0.3};
  GrowingTable one(options);
  GrowingTable other(options);
  std::vector<uint64_t> keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 977;
  const std::vector<float> first = lookup(one, keys);
  EXPECT_EQ(first, lookup(one, keys));
  EXPECT_EQ(first, found(other, keys));
  EXPECT_NEAR(static_cast<double>(one.size()), 6000, 300);
  EXPECT_EQ(one.statistics().refused, 2 * (keys.size() - one.size()));
  std::reverse(keys.begin(), keys.end());
  const std::vector<float> gradients(keys.size() * 5, 1);
  const SampleUpdate update = sample_update();
  other.apply(keys, gradients.data(), static_cast<const BlockUpdate&>(update));
  EXPECT_EQ(other.size(), one.size());
  EXPECT_EQ(other.statistics().dropped, keys.size() - one.size());
  for (const auto& [key, row] : contents(other)) EXPECT_TRUE(one.contains(key));
}

TEST(GrowingTableTest, ACountAdmitsAnIdAtThatLookup) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kCount, .count = 3};
  GrowingTable table(options);
  std::map<uint64_t, uint32_t> counts;
  std::mt19937_64 random(7);
  const SampleUpdate update = sample_update();
  for (int step = 0; step < 60; ++step) {
    const std::vector<uint64_t> keys = random_keys(random, 300, 13);
    lookup(table, keys);
    size_t admitted = 0;
    for (const uint64_t key : keys) ++counts[key];
    for (const auto& [key, count] : counts) {
      ASSERT_EQ(table.contains(key), count >= 3) << key;
      admitted += count >= 3 ? 1 : 0;
    }
    ASSERT_EQ(table.statistics().counted_ids, counts.size() - admitted);
    const std::vector<float> gradients(keys.size() * 5, 1);
    table.apply(keys, gradients.data(), static_cast<const BlockUpdate&>(update));
    ASSERT_EQ(table.size(), admitted);
  }
}

TEST(GrowingTableTest, ARowThatIsPutNeedsNoMoreLookups) {
  GrowingTable table({.name = "t",
                      .seed = 1,
                      .width = 1,
                      .admission = {.kind = Admission::Kind::kCount, .count = 3}});
  const std::vector<uint64_t> ids = {7, 8};
  lookup(table, ids);
  lookup(table, ids);
  EXPECT_EQ(table.statistics().counted_ids, 2U);
  table.put(7, std::vector<float>{5});
  EXPECT_EQ(table.statistics().counted_ids, 1U);
  table.evict(std::vector<uint64_t>{7});
  lookup(table, ids);
  EXPECT_FALSE(table.contains(7));
  EXPECT_TRUE(table.contains(8));
}

TEST(GrowingTableTest, CountsOfTooManyIdsAreForgotten) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kCount, .count = 3, .counted_ids = 800};
  GrowingTable table(options);
  std::vector<uint64_t> often(400);
  for (size_t i = 0; i < often.size(); ++i) often[i] = i;
  lookup(table, often);
  lookup(table, often);
  for (uint64_t round = 1; round < 20; ++round) {
    std::vector<uint64_t> rare(100);
    for (size_t i = 0; i < rare.size(); ++i) rare[i] = round * 1000 + i;
    lookup(table, rare);
    EXPECT_LE(table.statistics().counted_ids, 800U);
  }
  lookup(table, often);
  EXPECT_EQ(table.size(), often.size());
}

TEST(GrowingTableTest, AScoreAdmitsAnId) {
  TableOptions options = sample_options();
  options.fields.score = true;
  options.score = {.show_coefficient = 0.25, .click_coefficient = 1};
  options.admission = {.kind = Admission::Kind::kScore, .threshold = 2};
  GrowingTable table(options);
  const std::vector<uint64_t> keys = {1, 2, 3};
  table.add_shows(keys, std::vector<float>{4, 4, 1}, std::vector<float>{1, 0, 0});
  lookup(table, keys);
  EXPECT_TRUE(table.contains(1));
  EXPECT_EQ(table.size(), 1U);
  table.add_shows(keys, std::vector<float>{1, 4, 1}, std::vector<float>{0, 0, 0});
  lookup(table, keys);
  EXPECT_TRUE(table.contains(2));
  EXPECT_FALSE(table.contains(3));
  const PlainTable rows = contents(table);
  EXPECT_EQ(rows.at(1).show, 5);
  EXPECT_EQ(rows.at(1).click, 1);
  EXPECT_EQ(rows.at(2).show, 8);
}

TEST(GrowingTableTest, PutWritesRowsThatRulesWouldNotAdmit) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kProbability, .probability = 0};
  GrowingTable table(options);
  const std::vector<float> row = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  table.put(~uint64_t{0}, row);
  EXPECT_EQ(found(table, {~uint64_t{0}}), std::vector<float>({1, 2, 3, 4, 5}));
  EXPECT_THROW(table.put(1, std::vector<float>(5)), ProgramError);
}

TEST(GrowingTableTest, SenselessOptionsAreRefused) {
  const auto refused = [](const std::function<void(TableOptions&)>& change) {
    TableOptions options = sample_options();
    change(options);
    EXPECT_THROW(GrowingTable{options}, UsageError);
  };
  refused([](TableOptions& o) { o.width = 0; });
  refused([](TableOptions& o) { o.states[1].width = 0; });
  refused([](TableOptions& o) { o.width = size_t{1} << 40; });
  refused([](TableOptions& o) { o.initializer = RowInitializer::uniform(1, 0); });
  refused([](TableOptions& o) { o.initializer = RowInitializer::normal(0, -1); });
  refused([](TableOptions& o) { o.admission = {Admission::Kind::kProbability, 1.5}; });
  refused([](TableOptions& o) { o.admission = {Admission::Kind::kCount, 1, 0}; });
  refused([](TableOptions& o) { o.admission.counted_ids = 0; });
  refused([](TableOptions& o) { o.memory = {1 << 20, RowRank::kScore}; });
}

}  // namespace
}  // namespace fleet::fluid::tables

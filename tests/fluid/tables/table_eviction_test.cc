#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using namespace testing;

void look_up(GrowingTable& table, const std::vector<uint64_t>& keys) {
  std::vector<float> values(keys.size() * table.options().width);
  table.rows(keys, values.data());
}

// Rows that were looked up at different times and different often, some of them equally.
std::unique_ptr<GrowingTable> used_table(uint64_t seed, bool backward = false) {
  TableOptions options = sample_options();
  options.fields = {true, true, true};
  auto table = std::make_unique<GrowingTable>(options);
  std::mt19937_64 random(seed);
  for (uint32_t step = 0; step < 12; ++step) {
    table->set_clock(step);
    std::vector<uint64_t> keys = random_keys(random, 400, 11);
    std::vector<float> shows = random_floats(random, keys.size());
    for (float& show : shows) show = std::round(std::abs(show) * 4);
    std::vector<float> clicks(shows.size(), 1);
    if (backward) std::reverse(keys.begin(), keys.end());
    if (backward) std::reverse(shows.begin(), shows.end());
    look_up(*table, keys);
    table->add_shows(keys, shows, clicks);
  }
  return table;
}

double rank_of(const PlainRow& row, RowRank rank) {
  switch (rank) {
    case RowRank::kSeen:
      return row.seen;
    case RowRank::kCount:
      return row.count;
    case RowRank::kScore:
      return static_cast<double>(static_cast<float>(0.1 * static_cast<double>(row.show) +
                                                    0.9 * static_cast<double>(row.click)));
    case RowRank::kNorm: {
      double sum = 0;
      for (const float value : row.values) sum += static_cast<double>(value) * value;
      return static_cast<double>(static_cast<float>(std::sqrt(sum)));
    }
  }
  return 0;
}

constexpr RowRank kRanks[] = {RowRank::kSeen, RowRank::kCount, RowRank::kScore, RowRank::kNorm};

TEST(TableEvictionTest, KeepsTheGreatestAndOfEqualOnesThoseWithGreaterIds) {
  for (const RowRank rank : kRanks) {
    for (const uint64_t stay : {0, 1, 137, 900, 100000}) {
      const auto table = used_table(1);
      PlainTable plain = contents(*table);
      std::vector<std::pair<double, uint64_t>> order;
      for (const auto& [key, row] : plain) order.emplace_back(rank_of(row, rank), key);
      std::sort(order.begin(), order.end());
      const size_t gone = plain.size() > stay ? plain.size() - stay : 0;
      for (size_t i = 0; i < gone; ++i) plain.erase(order[i].second);
      EXPECT_EQ(table->evict_to(stay, rank), gone);
      ASSERT_EQ(contents(*table), plain);
      EXPECT_EQ(table->statistics().evicted, gone);
    }
  }
}

TEST(TableEvictionTest, DoesNotDependOnTheOrderOfArrival) {
  for (const RowRank rank : kRanks) {
    const auto forward = used_table(2);
    const auto backward = used_table(2, true);
    EXPECT_EQ(contents(*forward), contents(*backward));
    forward->evict_to(333, rank);
    backward->evict_to(333, rank);
    EXPECT_EQ(contents(*forward), contents(*backward));
  }
}

TEST(TableEvictionTest, EvictsWhatIsBelowABound) {
  for (const RowRank rank : kRanks) {
    const auto table = used_table(3);
    PlainTable plain = contents(*table);
    const double bound = rank == RowRank::kNorm ? 1.0 : 3.0;
    std::erase_if(plain, [&](const auto& one) { return rank_of(one.second, rank) < bound; });
    const uint64_t before = table->size();
    EXPECT_EQ(table->evict_below(bound, rank), before - plain.size());
    ASSERT_EQ(contents(*table), plain);
  }
}

TEST(TableEvictionTest, EvictsWhatWasNotSeen) {
  const auto table = used_table(4);
  table->set_clock(15);
  PlainTable plain = contents(*table);
  std::erase_if(plain, [](const auto& one) { return 15 - one.second.seen > 6; });
  table->evict_unseen(6);
  ASSERT_EQ(contents(*table), plain);
  EXPECT_FALSE(plain.empty());
}

TEST(TableEvictionTest, EvictsIdsThatAreNamed) {
  const auto table = used_table(5);
  PlainTable plain = contents(*table);
  std::vector<uint64_t> keys = {~uint64_t{0}};
  for (const auto& [key, row] : plain) {
    if (key % 3 == 0) keys.push_back(key);
  }
  EXPECT_EQ(table->evict(keys), keys.size() - 1);
  for (const uint64_t key : keys) plain.erase(key);
  ASSERT_EQ(contents(*table), plain);
}

TEST(TableEvictionTest, ShrinkDecaysAndDeletes) {
  const auto table = used_table(6);
  PlainTable plain = contents(*table);
  for (auto& [key, row] : plain) {
    row.show *= 0.5f;
    row.click *= 0.5f;
  }
  std::erase_if(plain, [](const auto& one) {
    const PlainRow& row = one.second;
    const double score = 0.1 * static_cast<double>(row.show) + 0.9 * static_cast<double>(row.click);
    return score < 0.8 || 11 - row.seen > 5;
  });
  const uint64_t before = table->size();
  EXPECT_EQ(table->shrink({.decay = 0.5, .delete_below = 0.8, .delete_unseen = 5}),
            before - plain.size());
  ASSERT_EQ(contents(*table), plain);
  EXPECT_FALSE(plain.empty());
}

TEST(TableEvictionTest, ALimitOfMemoryHolds) {
  TableOptions options = sample_options();
  options.memory = {.bytes = 3 << 20, .rank = RowRank::kSeen};
  GrowingTable table(options);
  std::mt19937_64 random(7);
  for (uint32_t step = 0; step < 20; ++step) {
    table.set_clock(step);
    const std::vector<uint64_t> keys = random_keys(random, 5000, 64);
    look_up(table, keys);
    ASSERT_LE(table.statistics().bytes, (3U << 20) + 200000);
    if (step < 10) continue;
    for (const uint64_t key : keys) ASSERT_TRUE(table.contains(key));
  }
  EXPECT_GT(table.statistics().evicted, 0U);
}

TEST(TableEvictionTest, ABucketThatMovesTakesItsCountedIdsAlong) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kCount, .count = 2};
  GrowingTable table(options);
  const std::vector<uint64_t> keys = keys_of_bucket(9, 20);
  look_up(table, {keys.begin(), keys.begin() + 10});
  look_up(table, {keys.begin() + 5, keys.end()});
  EXPECT_EQ(table.size(), 5U);
  EXPECT_EQ(table.statistics().counted_ids, 15U);
  table.drop_bucket(9);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.statistics().counted_ids, 0U);
  EXPECT_EQ(table.statistics().evicted, 0U);
}

TEST(TableEvictionTest, FieldsThatRowsLackCannotBeAsked) {
  TableOptions options = sample_options();
  options.fields = {};
  GrowingTable table(options);
  EXPECT_THROW(table.evict_unseen(1), UsageError);
  EXPECT_THROW(table.evict_to(0, RowRank::kCount), UsageError);
  EXPECT_THROW(table.evict_below(0, RowRank::kScore), UsageError);
  EXPECT_EQ(table.evict_to(0, RowRank::kNorm), 0U);
}

}  // namespace
}  // namespace fleet::fluid::tables

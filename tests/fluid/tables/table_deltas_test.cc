#include "fluid/tables/table_deltas.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "fluid/tables/table_saver.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using namespace testing;
using fluid::testing::TemporaryDirectory;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class TableDeltasTest : public ::testing::Test {
 protected:
  static TableOptions options() {
    TableOptions options = sample_options();
    options.deltas = true;
    return options;
  }
  fs::path file(const std::string& name) const { return directory_.path() / name; }
  void train(GrowingTable& table, size_t count, int bits = 12) {
    const std::vector<uint64_t> keys = random_keys(random_, count, bits);
    const std::vector<float> gradients = random_floats(random_, keys.size() * 5);
    const SampleUpdate update = sample_update();
    table.apply(keys, gradients.data(), static_cast<const BlockUpdate&>(update));
  }

  const TemporaryDirectory directory_;
  std::mt19937_64 random_{21};
};

TEST_F(TableDeltasTest, AReaderFollowsTheTable) {
  GrowingTable table(options());
  train(table, 1000);
  save_table(table, file("base"));
  GrowingTable follower(options());
  const std::vector<fs::path> base = {file("base")};
  DeltaReader reader(follower, load_table(follower, base).delta_numbers);
  for (uint64_t number = 1; number < 12; ++number) {
    table.set_clock(static_cast<uint32_t>(number));
    train(table, 200);
    if (number % 3 == 0) table.evict_to(table.size() - 150, RowRank::kSeen);
    if (number % 4 == 0) train(table, 100);
    const uint64_t rows = save_table(table, file("delta"), {.delta = true, .piece_bytes = 3000});
    EXPECT_LE(rows, number == 1 ? 1300U : 300U);
    EXPECT_EQ(table.delta_number(), number);
    reader.read(file("delta"));
    ASSERT_EQ(contents(follower), contents(table)) << number;
    ASSERT_EQ(follower.clock(), table.clock());
  }
}

TEST_F(TableDeltasTest, GapsAndRepetitionsAreRefused) {
  GrowingTable table(options());
  for (int number = 1; number <= 3; ++number) {
    train(table, 50);
    save_table(table, file(std::to_string(number)), {.delta = true});
  }
  GrowingTable follower(options());
  DeltaReader reader(follower, {0});
  const auto refused = [&](const std::string& name, const char* why) {
    const PlainTable before = contents(follower);
    try {
      reader.read(file(name));
      ADD_FAILURE() << name;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
    EXPECT_EQ(contents(follower), before);
  };
  refused("2", "a delta is missing");
  reader.read(file("1"));
  refused("1", "read before");
  refused("3", "a delta is missing");
  reader.read(file("2"));
  reader.read(file("3"));
  refused("2", "read before");
  EXPECT_EQ(contents(follower), contents(table));
  EXPECT_EQ(reader.numbers(), std::vector<uint64_t>({3}));
  save_table(table, file("whole"));
  refused("whole", "no delta");
}

TEST_F(TableDeltasTest, ADeltaIsOfOneMoment) {
  GrowingTable table(options());
  train(table, 3000, 13);
  save_table(table, file("1"), {.delta = true});
  train(table, 2000, 13);
  const PlainTable moment = contents(table);
  {
    TableSaver saver(table, file("2"), {.delta = true, .piece_bytes = 4000});
    while (saver.collect()) {
      train(table, 100, 13);
      if (random_() % 4 == 0) table.evict_to(table.size() - 30, RowRank::kSeen);
      saver.write();
    }
    saver.commit();
  }
  GrowingTable follower(options());
  DeltaReader reader(follower, {0});
  reader.read(file("1"));
  reader.read(file("2"));
  EXPECT_EQ(contents(follower), moment);
  save_table(table, file("3"), {.delta = true});
  reader.read(file("3"));
  EXPECT_EQ(contents(follower), contents(table));
}

TEST_F(TableDeltasTest, WhatADeltaThatWasGivenUpHadComesWithTheNext) {
  GrowingTable table(options());
  train(table, 500);
  {
    TableSaver given_up(table, file("1"), {.delta = true});
    ASSERT_TRUE(given_up.collect());
  }
  EXPECT_EQ(table.delta_number(), 0U);
  save_table(table, file("1"), {.delta = true});
  table.evict_to(300, RowRank::kSeen);
  {
    TableSaver given_up(table, file("2"), {.delta = true});
    ASSERT_TRUE(given_up.collect());
  }
  train(table, 5);
  save_table(table, file("2"), {.delta = true});
  GrowingTable follower(options());
  DeltaReader reader(follower, {0});
  reader.read(file("1"));
  reader.read(file("2"));
  EXPECT_EQ(contents(follower), contents(table));
}

TEST_F(TableDeltasTest, ADamagedDeltaChangesNothing) {
  GrowingTable table(options());
  train(table, 8);
  save_table(table, file("1"), {.delta = true, .piece_bytes = 100});
  std::ifstream in(file("1"), std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 16);
    std::ofstream(file("bad"), std::ios::binary) << bad;
    GrowingTable follower(options());
    DeltaReader reader(follower, {0});
    EXPECT_THROW(reader.read(file("bad")), ResourceError) << i;
    EXPECT_EQ(follower.size(), 0U);
    EXPECT_EQ(reader.numbers()[0], 0U);
  }
}

TEST_F(TableDeltasTest, ATableWithoutAccountOfChangesWritesNone) {
  GrowingTable table(sample_options());
  EXPECT_THROW(save_table(table, file("1"), {.delta = true}), UsageError);
}

TEST_F(TableDeltasTest, ServersHaveNumbersOfTheirOwn) {
  GrowingTable follower(options());
  DeltaReader reader(follower, {0, 0});
  PlainTable all;
  for (uint32_t part = 0; part < 2; ++part) {
    GrowingTable table(options());
    std::vector<uint64_t> keys;
    for (uint64_t key = 0; key < 300; ++key) {
      if (bucket_of(key) % 2 == part) keys.push_back(key);
    }
    std::vector<float> values(keys.size() * 5);
    table.rows(keys, values.data());
    save_table(table, file("1"), {.delta = true, .part = part, .parts = 2});
    reader.read(file("1"));
    EXPECT_THROW(reader.read(file("1")), UsageError);
    all.merge(contents(table));
  }
  EXPECT_EQ(contents(follower), all);
}

}  // namespace
}  // namespace fleet::fluid::tables

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "fluid/tables/table_loading.h"
#include "fluid/tables/table_saver.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using namespace testing;
using fluid::testing::TemporaryDirectory;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

void train(GrowingTable& table, const std::vector<uint64_t>& keys, std::mt19937_64& random) {
  std::vector<float> values(keys.size() * table.options().width);
  table.rows(keys, values.data());
  const std::vector<float> gradients = random_floats(random, values.size());
  const SampleUpdate update = sample_update();
  table.apply(keys, gradients.data(), static_cast<const BlockUpdate&>(update));
}

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

class TableFilesTest : public ::testing::Test {
 protected:
  fs::path file(const std::string& name) const { return directory_.path() / name; }
  LoadedTable load(GrowingTable& table, const std::vector<fs::path>& files,
                   const BucketFilter& wanted = {}) const {
    return load_table(table, files, wanted);
  }

  const TemporaryDirectory directory_;
  std::mt19937_64 random_{11};
};

TEST_F(TableFilesTest, WhatWasSavedIsLoaded) {
  GrowingTable table(sample_options());
  table.set_clock(5);
  std::vector<uint64_t> keys = random_keys(random_, 20000, 64);
  const std::vector<uint64_t> awkward = awkward_keys();
  keys.insert(keys.end(), awkward.begin(), awkward.end());
  train(table, keys, random_);
  EXPECT_EQ(save_table(table, file("a"), {.piece_bytes = 10000}), keys.size());
  GrowingTable other(sample_options());
  train(other, {1, 2, 3}, random_);
  EXPECT_EQ(load(other, {file("a")}).rows, keys.size());
  EXPECT_EQ(contents(other), contents(table));
  EXPECT_EQ(other.clock(), 5U);
  train(table, keys, random_ = std::mt19937_64(1));
  train(other, keys, random_ = std::mt19937_64(1));
  EXPECT_EQ(contents(other), contents(table));
}

TEST_F(TableFilesTest, EqualTablesMakeEqualFiles) {
  GrowingTable one(sample_options());
  GrowingTable other(sample_options());
  std::vector<uint64_t> keys = random_keys(random_, 3000, 30);
  std::vector<float> values(keys.size() * 5);
  one.rows(keys, values.data());
  std::reverse(keys.begin(), keys.end());
  other.rows(keys, values.data());
  save_table(one, file("one"));
  save_table(other, file("other"));
  EXPECT_TRUE(bytes_of(file("one")) == bytes_of(file("other")));
}

TEST_F(TableFilesTest, AnEmptyTableIsATable) {
  GrowingTable table(sample_options());
  EXPECT_EQ(save_table(table, file("a")), 0U);
  GrowingTable other(sample_options());
  train(other, {1, 2}, random_);
  EXPECT_EQ(load(other, {file("a")}).rows, 0U);
  EXPECT_EQ(other.size(), 0U);
}

TEST_F(TableFilesTest, AnyNumberOfServersLoadsWhatAnyNumberSaved) {
  GrowingTable whole(sample_options());
  std::vector<std::unique_ptr<GrowingTable>> savers;
  savers.reserve(3);
  for (int s = 0; s < 3; ++s) savers.push_back(std::make_unique<GrowingTable>(sample_options()));
  std::vector<std::vector<uint64_t>> owned(3);
  const std::vector<uint64_t> keys = random_keys(random_, 6000, 64);
  for (const uint64_t key : keys) owned[bucket_of(key) % 3].push_back(key);
  std::vector<fs::path> files;
  for (uint32_t s = 0; s < 3; ++s) {
    train(*savers[s], owned[s], random_);
    files.push_back(file(std::to_string(s)));
    save_table(*savers[s], files[s], {.part = s, .parts = 3, .piece_bytes = 5000});
  }
  std::swap(files[0], files[2]);
  PlainTable all;
  for (const auto& saver : savers) all.merge(contents(*saver));
  load(whole, files);
  EXPECT_EQ(contents(whole), all);
  for (uint32_t s = 0; s < 2; ++s) {
    GrowingTable half(sample_options());
    const auto mine = [&](uint32_t bucket) { return bucket * 2 / kBuckets == s; };
    load(half, files, mine);
    PlainTable expected = all;
    std::erase_if(expected, [&](const auto& one) { return !mine(bucket_of(one.first)); });
    EXPECT_EQ(contents(half), expected);
  }
  EXPECT_THROW(load(whole, {files[0], files[1]}), UsageError);
  EXPECT_THROW(load(whole, {files[0], files[1], files[1]}), UsageError);
  EXPECT_EQ(contents(whole), all);
}

TEST_F(TableFilesTest, IdsThatAreCountedAreSavedToo) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kCount, .count = 3};
  GrowingTable table(options);
  std::vector<float> values(3 * 5);
  const std::vector<uint64_t> keys = {1, 2, 3};
  table.rows(keys, values.data());
  table.rows(std::span(keys).first(2), values.data());
  table.rows(std::span(keys).first(1), values.data());
  save_table(table, file("a"));
  GrowingTable other(options);
  load(other, {file("a")});
  EXPECT_EQ(other.statistics().counted_ids, 2U);
  other.rows(keys, values.data());
  EXPECT_TRUE(other.contains(2));
  EXPECT_FALSE(other.contains(3));
}

TEST_F(TableFilesTest, AFileIsOfOneMomentThoughTheTableGoesOn) {
  for (const bool evicts : {false, true}) {
    GrowingTable table(sample_options());
    const std::vector<uint64_t> keys = random_keys(random_, 9000, 14);
    train(table, {keys.begin(), keys.begin() + 7000}, random_);
    const PlainTable moment = contents(table);
    save_table(table, file("before"), {.piece_bytes = 9000});
    {
      TableSaver saver(table, file("during"), {.piece_bytes = 9000});
      while (saver.collect()) {
        std::vector<uint64_t> some = keys;
        std::shuffle(some.begin(), some.end(), random_);
        some.resize(300);
        train(table, some, random_);
        if (evicts && random_() % 3 == 0) table.evict(std::span(some).first(150));
        if (evicts && random_() % 20 == 0) table.evict_to(4000, RowRank::kCount);
        saver.write();
      }
      saver.commit();
      EXPECT_EQ(saver.kept_bytes(), 0U);
    }
    EXPECT_NE(contents(table), moment);
    EXPECT_TRUE(bytes_of(file("before")) == bytes_of(file("during")));
  }
}

TEST_F(TableFilesTest, ASaveThatIsGivenUpLeavesTheOldFile) {
  GrowingTable table(sample_options());
  train(table, {1, 2, 3}, random_);
  save_table(table, file("a"));
  const std::string before = bytes_of(file("a"));
  train(table, {4}, random_);
  {
    TableSaver saver(table, file("a"));
    ASSERT_TRUE(saver.collect());
    saver.write();
    GrowingTable& busy = table;
    EXPECT_THROW(load(busy, {file("a")}), UsageError);
  }
  EXPECT_EQ(bytes_of(file("a")), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1);
  EXPECT_THROW(save_table(table, file("none") / "a"), ResourceError);
}

// What load_table says of these bytes; the table must stay as it was.
std::string refusal(const fs::path& file, const std::string& bytes) {
  write_bytes(file, bytes);
  GrowingTable table(sample_options());
  std::vector<float> values(5);
  const std::vector<uint64_t> keys = {42};
  table.rows(keys, values.data());
  const PlainTable before = contents(table);
  try {
    const std::vector<fs::path> files = {file};
    load_table(table, files);
  } catch (const ResourceError& error) {
    EXPECT_EQ(contents(table), before);
    return error.what();
  }
  return "loaded";
}

TEST_F(TableFilesTest, EveryDamagedByteIsFound) {
  TableOptions options = sample_options();
  options.admission = {.kind = Admission::Kind::kCount, .count = 2};
  GrowingTable table(options);
  const std::vector<uint64_t> keys = random_keys(random_, 12, 64);
  train(table, {keys.begin(), keys.begin() + 9}, random_);
  train(table, {keys.begin() + 3, keys.end()}, random_);
  save_table(table, file("good"), {.piece_bytes = 200});
  const std::string good = bytes_of(file("good"));
  ASSERT_EQ(refusal(file("copy"), good), "loaded");
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    ASSERT_THAT(refusal(file("copy"), bad), HasSubstr("copy")) << "byte " << i;
  }
  for (size_t length = 0; length < good.size(); length += 3) {
    ASSERT_THAT(refusal(file("copy"), good.substr(0, length)), HasSubstr("copy")) << length;
  }
  EXPECT_THAT(refusal(file("copy"), good + "x"), HasSubstr("behind the end"));
  EXPECT_THAT(refusal(file("copy"), good + good), HasSubstr("behind the end"));
}

TEST_F(TableFilesTest, ErrorsNameThePiece) {
  GrowingTable table(sample_options());
  train(table, random_keys(random_, 300, 64), random_);
  save_table(table, file("good"), {.piece_bytes = 4000});
  std::string bad = bytes_of(file("good"));
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] + 1);
  EXPECT_THAT(refusal(file("copy"), bad), HasSubstr("piece"));
  EXPECT_THAT(refusal(file("copy"), std::string(200, 'x')), HasSubstr("not the file"));
}

TEST_F(TableFilesTest, OtherFormsAreRefused) {
  GrowingTable table(sample_options());
  train(table, {1, 2, 3}, random_);
  save_table(table, file("a"));
  const auto refused = [&](const std::function<void(TableOptions&)>& change) {
    TableOptions options = sample_options();
    change(options);
    GrowingTable other(options);
    EXPECT_THROW(load(other, {file("a")}), UsageError);
  };
  refused([](TableOptions& o) { o.width = 6; });
  refused([](TableOptions& o) { o.states.pop_back(); });
  refused([](TableOptions& o) { o.states[0].name = "other"; });
  EXPECT_THROW(load(table, {}), UsageError);
  EXPECT_THROW(load(table, {file("missing")}), ResourceError);
}

TEST_F(TableFilesTest, FieldsMayDiffer) {
  TableOptions options = sample_options();
  options.fields = {};
  GrowingTable bare(options);
  bare.set_clock(9);
  train(bare, {1, 2, 3}, random_);
  save_table(bare, file("bare"));
  GrowingTable table(sample_options());
  load(table, {file("bare")});
  for (const auto& [key, row] : contents(table)) {
    EXPECT_EQ(row.seen, 9U);
    EXPECT_EQ(row.count, 0U);
    EXPECT_EQ(row.values, contents(bare).at(key).values);
    EXPECT_EQ(row.states, contents(bare).at(key).states);
  }
  save_table(table, file("full"));
  GrowingTable again(options);
  load(again, {file("full")});
  EXPECT_EQ(contents(again), contents(bare));
}

}  // namespace
}  // namespace fleet::fluid::tables

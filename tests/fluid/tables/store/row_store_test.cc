#include "fluid/tables/store/row_store.h"

#include <gtest/gtest.h>
#include <unordered_map>

#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using testing::awkward_keys;
using testing::keys_of_bucket;
using testing::random_keys;

constexpr size_t kRowBytes = 16;

void write(RowStore& store, RowPlace place, uint64_t a, uint64_t b) {
  std::memcpy(store.row(place), &a, sizeof a);
  std::memcpy(store.row(place) + 8, &b, sizeof b);
}
uint64_t read(const RowStore& store, RowPlace place, size_t word) {
  uint64_t value = 0;
  std::memcpy(&value, store.row(place) + 8 * word, sizeof value);
  return value;
}

TEST(RowStoreTest, FindsNothingInAnEmptyStore) {
  const RowStore store(kRowBytes);
  for (const uint64_t key : awkward_keys()) EXPECT_FALSE(store.find(key).found());
  EXPECT_EQ(store.size(), 0U);
}

TEST(RowStoreTest, EveryKeyIsAKey) {
  RowStore store(kRowBytes);
  const std::vector<uint64_t> keys = awkward_keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    bool made = false;
    write(store, store.insert(keys[i], made), i, ~i);
    EXPECT_TRUE(made);
    store.insert(keys[i], made);
    EXPECT_FALSE(made);
  }
  EXPECT_EQ(store.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const RowPlace place = store.find(keys[i]);
    ASSERT_TRUE(place.found()) << keys[i];
    EXPECT_EQ(read(store, place, 0), i);
    EXPECT_EQ(read(store, place, 1), ~i);
  }
}

TEST(RowStoreTest, ABucketGrowsAndShrinks) {
  RowStore store(kRowBytes);
  const std::vector<uint64_t> keys = keys_of_bucket(77, 1500);
  for (const uint64_t key : keys) {
    bool made = false;
    write(store, store.insert(key, made), key, 0);
  }
  EXPECT_EQ(store.size_of(77), 1500U);
  const uint64_t full = store.bytes();
  EXPECT_EQ(store.erase_if(77, [](uint64_t key, const std::byte*) { return key % 7 != 0; }) +
                store.size(),
            1500U);
  EXPECT_LT(store.bytes(), full);
  for (const uint64_t key : keys) {
    const RowPlace place = store.find(key);
    ASSERT_EQ(place.found(), key % 7 == 0);
    if (place.found()) {
      EXPECT_EQ(read(store, place, 0), key);
    }
  }
  store.erase_if(77, [](uint64_t, const std::byte*) { return true; });
  EXPECT_EQ(store.size(), 0U);
  EXPECT_FALSE(store.find(keys[0]).found());
}

// Random operations, against a plain map.
void compare_with_map(uint64_t seed, int bits) {
  std::mt19937_64 random(seed);
  RowStore store(kRowBytes);
  std::unordered_map<uint64_t, uint64_t> plain;
  const std::vector<uint64_t> keys = random_keys(random, 40000, bits);
  for (int round = 0; round < 30; ++round) {
    for (size_t i = 0; i < 3000; ++i) {
      const uint64_t key = keys[random() % keys.size()];
      bool made = false;
      const RowPlace place = store.insert(key, made);
      EXPECT_EQ(made, !plain.contains(key));
      write(store, place, plain[key] = random(), key);
    }
    if (round % 3 == 2) {
      const uint64_t rest = random() % 5;
      for (uint32_t b = 0; b < kBuckets; ++b) {
        store.erase_if(b, [&](uint64_t key, const std::byte*) { return key % 5 == rest; });
      }
      std::erase_if(plain, [&](const auto& one) { return one.first % 5 == rest; });
    }
    ASSERT_EQ(store.size(), plain.size());
    size_t at = 0;
    store.visit(keys, kRowBytes, [&](size_t i, const std::byte* row, RowPlace place) {
      ASSERT_EQ(i, at++);
      const auto found = plain.find(keys[i]);
      ASSERT_EQ(row != nullptr, found != plain.end());
      ASSERT_EQ(place.found(), found != plain.end());
      if (found == plain.end()) return;
      ASSERT_EQ(row, store.row(place));
      EXPECT_EQ(read(store, place, 0), found->second);
      EXPECT_EQ(read(store, place, 1), keys[i]);
    });
    ASSERT_EQ(at, keys.size());
  }
}

TEST(RowStoreTest, IsAMapOfSmallIds) {
  compare_with_map(1, 17);
}
TEST(RowStoreTest, IsAMapOfAllIds) {
  compare_with_map(2, 64);
}

TEST(RowStoreTest, VisitsAnyNumberOfKeys) {
  RowStore store(kRowBytes);
  bool made = false;
  store.insert(5, made);
  for (size_t n = 0; n < 140; ++n) {
    const std::vector<uint64_t> keys(n, 5);
    size_t found = 0;
    store.visit(keys, kRowBytes,
                [&](size_t, const std::byte* row, RowPlace) { found += row != nullptr ? 1 : 0; });
    EXPECT_EQ(found, n);
  }
}

TEST(RowStoreTest, TakesSixteenBytesARowAtMost) {
  for (const size_t floats : {10, 16, 48}) {
    const size_t payload = floats * 4;
    RowStore store(payload);
    std::mt19937_64 random(3);
    for (size_t rows = 0; rows < 1'300'000; ++rows) {
      bool made = false;
      store.insert(random(), made);
      if (rows < 1'000'000 || rows % 20'000 != 0) continue;
      const double each = static_cast<double>(store.bytes()) / static_cast<double>(store.size());
      ASSERT_LE(each, static_cast<double>(payload + 16)) << rows << " rows of " << floats;
    }
  }
}

}  // namespace
}  // namespace fleet::fluid::tables

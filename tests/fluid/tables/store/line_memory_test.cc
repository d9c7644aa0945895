#include "fluid/tables/store/line_memory.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <new>
#include <random>
#include <vector>

namespace fleet::fluid::tables {
namespace {

constexpr size_t kLine = LineMemory::kLine;

struct TakenRun {
  std::byte* begin;
  size_t bytes;
  unsigned char content;

  size_t whole() const { return (bytes + kLine - 1) / kLine * kLine; }
};

TakenRun taken(LineMemory& memory, size_t bytes, unsigned char content) {
  const TakenRun run = {memory.take(bytes), bytes, content};
  std::memset(run.begin, content, bytes);
  return run;
}

bool holds_its_content(const TakenRun& run) {
  for (size_t i = 0; i < run.bytes; ++i) {
    if (std::to_integer<unsigned char>(run.begin[i]) != run.content) return false;
  }
  return true;
}

TEST(LineMemoryTest, RunsAreApartAndKeepTheirContent) {
  LineMemory memory(size_t{1} << 20);
  std::mt19937_64 random(3);
  std::vector<TakenRun> runs;
  std::map<std::byte*, size_t> by_place;
  size_t used = 0;
  for (int i = 0; i < 20'000; ++i) {
    // Grows first, then shrinks; sizes of all bins.
    const bool takes = runs.empty() || random() % 8 < (i < 10'000 ? 5U : 3U);
    if (takes) {
      const size_t bytes = 1 + random() % (size_t{64} << random() % 13);
      const TakenRun run = taken(memory, bytes, static_cast<unsigned char>(random()));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(run.begin) % kLine, 0U);
      const auto next = by_place.lower_bound(run.begin);
      if (next != by_place.end()) {
        ASSERT_LE(run.begin + run.whole(), next->first);
      }
      if (next != by_place.begin()) {
        const auto before = std::prev(next);
        ASSERT_LE(before->first + before->second, run.begin);
      }
      by_place.emplace(run.begin, run.whole());
      runs.push_back(run);
      used += run.whole();
    } else {
      std::swap(runs[random() % runs.size()], runs.back());
      const TakenRun run = runs.back();
      runs.pop_back();
      ASSERT_TRUE(holds_its_content(run));
      by_place.erase(run.begin);
      memory.give(run.begin, run.bytes);
      used -= run.whole();
    }
    ASSERT_EQ(memory.used(), used);
    ASSERT_GE(memory.reserved(), used);
  }
  for (const TakenRun& run : runs) {
    EXPECT_TRUE(holds_its_content(run));
    memory.give(run.begin, run.bytes);
  }
  EXPECT_EQ(memory.used(), 0U);
  // All but one block went back to the system.
  EXPECT_LE(memory.reserved(), size_t{16} << 20);
}

TEST(LineMemoryTest, RunsThatWereGivenBackBecomeOne) {
  constexpr size_t kLargest = size_t{1} << 20;
  LineMemory memory(kLargest);
  std::vector<TakenRun> runs = {taken(memory, 1000, 1)};
  // Until the first block is full.
  const size_t reserved = memory.reserved();
  while (memory.reserved() == reserved) runs.push_back(taken(memory, 1000, 1));
  memory.give(runs.back().begin, runs.back().bytes);
  runs.pop_back();
  ASSERT_EQ(memory.reserved(), reserved);
  // All but the first run: what is behind, before and on both sides of a free one.
  for (const size_t first : {size_t{1}, size_t{2}}) {
    for (size_t i = first; i < runs.size(); i += 2) memory.give(runs[i].begin, runs[i].bytes);
  }
  std::vector<TakenRun> large;
  for (size_t bytes = kLargest; bytes + kLargest < reserved; bytes += kLargest) {
    large.push_back(taken(memory, kLargest, 2));
  }
  EXPECT_GE(large.size(), 2U);
  EXPECT_EQ(memory.reserved(), reserved);
  for (const TakenRun& run : large) memory.give(run.begin, run.bytes);
}

// As buckets of a table grow: each takes a larger run, and gives the one before it back.
TEST(LineMemoryTest, WhatGrowsStepByStepLeavesFewHoles) {
  LineMemory memory(size_t{1} << 19);
  std::mt19937_64 random(5);
  std::vector<TakenRun> runs(4096, {nullptr, 0, 0});
  for (size_t bytes = kLine; bytes < 30'000; bytes += std::max(kLine, bytes / 8)) {
    std::shuffle(runs.begin(), runs.end(), random);
    for (TakenRun& run : runs) {
      std::byte* const begin = memory.take(bytes);
      memory.give(run.begin, run.bytes);
      run = {begin, bytes, 0};
    }
  }
  EXPECT_LT(static_cast<double>(memory.reserved()), 1.5 * static_cast<double>(memory.used()));
}

TEST(LineMemoryTest, TakesNoRunThatNoBlockHolds) {
  LineMemory memory(kLine);
  EXPECT_EQ(memory.take(0), nullptr);
  memory.give(nullptr, 0);
  EXPECT_THROW(memory.take(size_t{16} << 20), std::bad_alloc);
  EXPECT_EQ(memory.reserved(), 0U);
  // More than the first block has.
  const TakenRun large = taken(memory, size_t{12} << 20, 7);
  EXPECT_TRUE(holds_its_content(large));
  EXPECT_EQ(memory.used(), large.bytes);
}

}  // namespace
}  // namespace fleet::fluid::tables

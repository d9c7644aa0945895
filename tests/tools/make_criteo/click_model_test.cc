#include "tools/make_criteo/click_model.h"

#include <cmath>
#include <gmock/gmock.h>
#include <map>
#include <set>

#include "base/error.h"

namespace fleet::tools {
namespace {

constexpr uint64_t kRecords = 20000;

TEST(ClickModel, RecordsDependOnSeedAndNumberAlone) {
  const ClickModel model({.seed = 4, .ids = 500});
  const ClickModel same({.seed = 4, .ids = 500});
  const ClickModel other({.seed = 5, .ids = 500});
  int differ = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const ClickRecord record = model.record(i);
    EXPECT_EQ(record.probability, same.record(i).probability);
    EXPECT_EQ(record.numbers, same.record(i).numbers);
    EXPECT_EQ(record.categories, same.record(i).categories);
    EXPECT_EQ(record.click, same.record(i).click);
    differ += record.probability != other.record(i).probability ? 1 : 0;
  }
  EXPECT_EQ(differ, 100);
}

TEST(ClickModel, ClicksComeWithTheirProbability) {
  const ClickModel model({.ids = 2000, .click_rate = 0.3});
  // By tenths of the probability: expected and drawn.
  std::array<double, 10> expected{};
  std::array<double, 10> drawn{};
  std::array<int, 10> count{};
  double mean = 0;
  for (uint64_t i = 0; i < kRecords; ++i) {
    const ClickRecord record = model.record(i);
    const auto tenth = std::min<size_t>(9, static_cast<size_t>(10 * record.probability));
    expected[tenth] += record.probability;
    drawn[tenth] += record.click ? 1 : 0;
    ++count[tenth];
    mean += record.probability / kRecords;
  }
  EXPECT_NEAR(mean, 0.3, 0.02);
  for (size_t k = 0; k < 10; ++k) {
    EXPECT_NEAR(drawn[k], expected[k], 5 * std::sqrt(0.25 * count[k]) + 1) << k;
  }
}

TEST(ClickModel, ValuesAreAsManyAndAsFrequentAsAsked) {
  const ClickModel model({.ids = 2600, .zipf = 1.5, .missing = 0.1});
  int64_t all = 0;
  for (int i = 0; i < kClickCategories; ++i) all += model.values(i);
  EXPECT_NEAR(static_cast<double>(all), 2600, 30);
  EXPECT_GT(model.values(25), 500 * model.values(0));
  std::map<uint32_t, int> seen;
  int empty = 0;
  int empty_numbers = 0;
  for (uint64_t i = 0; i < kRecords; ++i) {
    const ClickRecord record = model.record(i);
    if (record.categories[25]) {
      ++seen[*record.categories[25]];
    }
    for (const auto& category : record.categories) empty += category ? 0 : 1;
    for (const auto& number : record.numbers) empty_numbers += number ? 0 : 1;
  }
  EXPECT_LE(static_cast<int64_t>(seen.size()), model.values(25));
  std::vector<int> counts;
  for (const auto& [value, count] : seen) counts.push_back(count);
  std::sort(counts.rbegin(), counts.rend());
  EXPECT_NEAR(static_cast<double>(counts[0]) / counts[1], std::pow(2, 1.5), 0.3);
  EXPECT_NEAR(empty, kRecords * kClickCategories * 0.1, kRecords * kClickCategories * 0.05);
  EXPECT_NEAR(empty_numbers, kRecords * kClickNumbers * 0.1, kRecords * kClickNumbers * 0.07);
}

TEST(ClickModel, RefusesWhatCannotBe) {
  EXPECT_THROW(ClickModel({.ids = 25}), UsageError);
  EXPECT_THROW(ClickModel({.zipf = -1}), UsageError);
  EXPECT_THROW(ClickModel({.strength = std::nan("")}), UsageError);
  EXPECT_THROW(ClickModel({.click_rate = 1}), UsageError);
  EXPECT_THROW(ClickModel({.missing = 0.6}), UsageError);
}

}  // namespace
}  // namespace fleet::tools

#include "fluid/tables/lookup/shared_table.h"

#include <gmock/gmock.h>
#include <random>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "fluid/tables/lookup/unique_ids.h"
#include "tests/fluid/tables/table_model.h"

namespace fleet::fluid::tables {
namespace {

using namespace testing;
using ::testing::ElementsAre;

TEST(UniqueIds, NumberIdsInTheOrderInWhichTheyCome) {
  UniqueIds unique;
  std::mt19937_64 random(3);
  for (const int bits : {3, 12, 64}) {
    unique.begin(5000);
    std::unordered_map<uint64_t, uint32_t> expected;
    for (int i = 0; i < 5000; ++i) {
      const uint64_t id = bits == 64 && i % 3 > 0 ? random() << 52 : random() >> (64 - bits);
      const auto next = static_cast<uint32_t>(expected.size());
      EXPECT_EQ(unique.add(id), expected.try_emplace(id, next).first->second);
    }
    ASSERT_EQ(unique.ids().size(), expected.size());
    for (const auto& [id, at] : expected) EXPECT_EQ(unique.ids()[at], id);
  }
  unique.begin(3);
  unique.add(~uint64_t{0});
  unique.add(0);
  unique.add(~uint64_t{0});
  EXPECT_THAT(unique.ids(), ElementsAre(~uint64_t{0}, 0));
  EXPECT_THROW(unique.begin(size_t{1} << 40), UsageError);
}

TEST(SharedTable, IsOneObjectInCopiesOfAValue) {
  Scope scope;
  scope.var("t") = table_value(std::make_shared<SharedTable>(sample_options()));
  Value copy;
  copy_value(*scope.find("t"), copy, CPUPlace());
  growing_table(scope, "t")->alone([](GrowingTable& table) {
    std::vector<float> values(5);
    table.rows(std::vector<uint64_t>{7}, values.data());
  });
  EXPECT_EQ(table_of(copy)->statistics().rows, 1U);
  EXPECT_EQ(table_of(Value(Tensor())), nullptr);
  EXPECT_EQ(table_of(Value(Raw{})), nullptr);
  scope.var("x") = Tensor::scalar(1.0F);
  EXPECT_THROW(growing_table(scope, "x"), ProgramError);
  EXPECT_THROW(growing_table(scope, "y"), ProgramError);
}

TEST(SharedTable, ThreadsCallItAtOnce) {
  SharedTable table(sample_options());
  constexpr uint64_t kIds = 500;
  const auto work = [&](uint64_t first) {
    std::vector<float> values(5);
    for (uint64_t id = first; id < first + kIds; ++id) {
      const std::vector<uint64_t> keys = {id};
      table.alone([&](GrowingTable& rows) { rows.rows(keys, values.data()); });
      table.reading([&](const GrowingTable& rows) {
        rows.find(keys, values.data(), GrowingTable::Missing::kZero);
      });
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, i * kIds / 2);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.statistics().rows, kIds / 2 * 5);
}

}  // namespace
}  // namespace fleet::fluid::tables

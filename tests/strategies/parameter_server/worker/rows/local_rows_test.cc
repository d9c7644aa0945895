#include "strategies/parameter_server/worker/rows/local_rows.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <vector>

namespace fleet::strategies {
namespace {

using fluid::tables::GrowingTable;
using fluid::tables::SharedTable;
using fluid::tables::TableOptions;
using Ids = std::vector<uint64_t>;
using Floats = std::vector<float>;

constexpr size_t kRowWidth = 2;

TableOptions table_of(fluid::tables::Admission admission = {}) {
  return {.name = "t",
          .width = kRowWidth,
          .states = {{.name = "moment", .width = kRowWidth, .initial = 0.5F}},
          .admission = admission};
}

LocalRows make_rows(LocalRows::Asks asks, const TableOptions& options = table_of()) {
  return LocalRows(std::make_shared<SharedTable>(options), asks);
}

// Adds the gradient to values, and one to states.
class Adding final : public fluid::tables::InPlaceUpdate {
 public:
  void update(std::span<const fluid::tables::RowInPlace> rows) const override {
    for (const auto& row : rows) {
      for (size_t i = 0; i < kRowWidth; ++i) {
        row.row[i] += row.gradient[i];
        row.row[kRowWidth + i] += 1;
      }
    }
  }
};

// A step.
void train(const LocalRows& rows, const Ids& ids, float by) {
  const Floats gradients(ids.size() * kRowWidth, by);
  rows.table()->alone([&](GrowingTable& table) { table.apply(ids, gradients.data(), Adding()); });
}

// What lookups read: rows that are here, else `servers`, by id.
Floats look_up(LocalRows& rows, const Ids& ids, const Floats& servers, size_t* asked = nullptr) {
  Floats values(ids.size() * kRowWidth);
  const std::vector<bool> here = rows.find(ids, 0, values.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (here[i]) continue;
    Floats row(servers.begin() + static_cast<std::ptrdiff_t>(i * kRowWidth),
               servers.begin() + static_cast<std::ptrdiff_t>((i + 1) * kRowWidth));
    rows.keep(Ids{ids[i]}, 0, row.data());
    std::copy(row.begin(), row.end(), values.begin() + static_cast<std::ptrdiff_t>(i * kRowWidth));
  }
  if (asked != nullptr) *asked = static_cast<size_t>(std::count(here.begin(), here.end(), false));
  return values;
}

Floats state_of(const LocalRows& rows, uint64_t id) {
  Floats found;
  rows.table()->reading([&](const GrowingTable& table) {
    table.scan(0, fluid::tables::kBuckets, [&](const fluid::tables::RowView& row) {
      if (row.key == id) found.assign(row.states.begin(), row.states.end());
    });
  });
  return found;
}

TEST(LocalRows, UnderGeoAreAskedForInEachRound) {
  LocalRows rows = make_rows(LocalRows::Asks::kEachRound);
  size_t asked = 0;
  EXPECT_EQ(look_up(rows, {7, 8}, {1, 2, 3, 4}, &asked), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(asked, 2U);
  train(rows, {7}, 4);
  EXPECT_EQ(look_up(rows, {8, 7}, {0, 0, 0, 0}, &asked), (Floats{3, 4, 5, 6}));
  EXPECT_EQ(asked, 0U);
  const Ids touched = rows.take_touched();
  EXPECT_EQ(touched, (Ids{7, 8}));
  const fluid::SelectedRows sent = rows.geo_differences(touched, 2);
  EXPECT_EQ(sent.rows, (std::vector<int64_t>{7})) << "row 8 did not change";
  EXPECT_EQ(sent.height, fluid::SelectedRows::kNoHeight);
  EXPECT_EQ(sent.value.values<float>()[0], 2);
  // The servers have 2 of this worker's 4, and 10 of another one. It keeps the rest of its own.
  EXPECT_EQ(look_up(rows, {7}, {13, 14}, &asked), (Floats{15, 16}));
  EXPECT_EQ(asked, 1U);
  EXPECT_EQ(state_of(rows, 7), (Floats{1.5, 1.5})) << "states are the worker's";
}

TEST(LocalRows, UnderEasgdAreAskedForOnce) {
  LocalRows rows = make_rows(LocalRows::Asks::kOnce);
  look_up(rows, {7}, {1, 2});
  train(rows, {7}, 8);
  Ids touched = rows.take_touched();
  EXPECT_EQ(touched, (Ids{7}));
  const fluid::SelectedRows sent = rows.elastic_differences(touched, Floats{1, 2}.data(), 0.25);
  EXPECT_EQ(sent.value.values<float>()[1], 2);
  size_t asked = 0;
  EXPECT_EQ(look_up(rows, {7}, {0, 0}, &asked), (Floats{7, 8}));
  EXPECT_EQ(asked, 0U);
  EXPECT_EQ(rows.take_touched(), (Ids{7}));
  EXPECT_TRUE(rows.take_touched().empty());
}

// The servers' values count, and the states stay.
TEST(LocalRows, MayForgetWhatTheyDifferBy) {
  LocalRows rows = make_rows(LocalRows::Asks::kEachRound);
  look_up(rows, {7}, {1, 2});
  train(rows, {7}, 4);
  rows.forget_differences();
  EXPECT_TRUE(rows.take_touched().empty());
  EXPECT_EQ(look_up(rows, {7}, {3, 3}), (Floats{3, 3}));
  EXPECT_EQ(state_of(rows, 7), (Floats{1.5, 1.5}));
}

TEST(LocalRows, IdsThatAreNotAdmittedHaveNone) {
  LocalRows rows = make_rows(
      LocalRows::Asks::kEachRound,
      table_of({.kind = fluid::tables::Admission::Kind::kProbability, .probability = 0.5}));
  Ids ids(200);
  std::iota(ids.begin(), ids.end(), 0);
  const Floats servers(ids.size() * kRowWidth, 1);
  size_t asked = 0;
  const Floats first = look_up(rows, ids, servers, &asked);
  EXPECT_EQ(asked, ids.size());
  EXPECT_EQ(look_up(rows, ids, servers, &asked), first) << "whoever is asked";
  EXPECT_EQ(asked, 0U);
  EXPECT_EQ(std::count(first.begin(), first.end(), 1.0F),
            static_cast<std::ptrdiff_t>(kRowWidth * rows.table()->statistics().rows));
  const size_t admitted = rows.table()->statistics().rows;
  EXPECT_GT(admitted, 50U);
  EXPECT_LT(admitted, 150U);
  train(rows, ids, 1);
  const Ids touched = rows.take_touched();
  EXPECT_EQ(touched.size(), admitted);
  EXPECT_EQ(rows.geo_differences(touched, 1).rows.size(), admitted);
}

// A row that went, as at the end of a pass, is asked for again, and its difference is lost.
TEST(LocalRows, RowsThatAreGoneComeAgain) {
  LocalRows rows = make_rows(LocalRows::Asks::kEachRound);
  look_up(rows, {7, 8}, {1, 2, 3, 4});
  train(rows, {7, 8}, 4);
  rows.table()->alone([](GrowingTable& table) { table.evict(Ids{7}); });
  size_t asked = 0;
  EXPECT_EQ(look_up(rows, {7, 8}, {9, 9, 0, 0}, &asked), (Floats{9, 9, 7, 8}));
  EXPECT_EQ(asked, 1U);
  rows.table()->alone([](GrowingTable& table) { table.evict(Ids{8}); });
  EXPECT_EQ(rows.take_touched(), (Ids{7}));
  EXPECT_TRUE(rows.geo_differences(Ids{7}, 1).rows.empty());
}

TEST(LocalRows, TestsReadThem) {
  LocalRows rows = make_rows(LocalRows::Asks::kEachRound);
  look_up(rows, {7}, {1, 2});
  rows.take_touched();
  Floats values(4);
  EXPECT_EQ(rows.read(Ids{8, 7}, values.data()), (std::vector<bool>{false, false}))
      << "under GEO, servers know more in the next round";
  look_up(rows, {7}, {1, 2});
  EXPECT_EQ(rows.read(Ids{8, 7}, values.data()), (std::vector<bool>{false, true}));
  EXPECT_EQ(values[2], 1);
  EXPECT_EQ(values[3], 2);
  EXPECT_EQ(rows.take_touched(), (Ids{7})) << "of the lookup, not of the test";
  LocalRows once = make_rows(LocalRows::Asks::kOnce);
  look_up(once, {7}, {1, 2});
  once.take_touched();
  EXPECT_EQ(once.read(Ids{8, 7}, values.data()), (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace fleet::strategies

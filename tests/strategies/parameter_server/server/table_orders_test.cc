#include "strategies/parameter_server/server/table_orders.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/ops/distributed/table_ops.h"

namespace fleet::strategies {
namespace {

using fluid::tables::GrowingTable;
using fluid::tables::SharedTable;
using Action = TableOrder::Action;

const std::vector<uint64_t>& ids() {
  static const std::vector<uint64_t> all = [] {
    std::vector<uint64_t> some(100);
    std::iota(some.begin(), some.end(), 0);
    return some;
  }();
  return all;
}

const auto kUntouched = [] { return true; };

class TableOrdersTest : public ::testing::Test {
 protected:
  TableOrdersTest() {
    std::string folder = ::testing::TempDir() + "orders-XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  ~TableOrdersTest() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<SharedTable> make_table() const {
    return std::make_shared<SharedTable>(fluid::tables::TableOptions{
        .name = "t",
        .seed = 3,
        .width = 2,
        .states = {{.name = "moment", .width = 2, .initial = 1}},
        .initializer = {.kind = fluid::tables::RowInitializer::Kind::kUniform, .a = -1, .b = 1},
        .fields = {.seen = true},
        .deltas = true});
  }
  std::unique_ptr<TableOrders> server(uint32_t index, uint32_t servers,
                                      std::shared_ptr<SharedTable> table) const {
    auto orders = std::make_unique<TableOrders>(index, servers, SaveFolders({folder_.string()}),
                                                system_files(), make_background_thread());
    orders->add_table("t", std::move(table));
    return orders;
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  // What an order that is carried out gives; `order` has neither number nor table.
  uint64_t rows_of(TableOrders& orders, TableOrder order) {
    order.number = ++number_;
    order.table = "t";
    const TableAnswer answer = orders.carry_out(0, order, kUntouched);
    EXPECT_EQ(answer.why, "");
    return answer.rows;
  }

 private:
  std::filesystem::path folder_;
  uint64_t number_ = 0;
};

void look_up(SharedTable& table, const std::vector<uint64_t>& some) {
  std::vector<float> values(some.size() * 2);
  table.alone([&](GrowingTable& rows) { rows.rows(some, values.data()); });
}

TEST_F(TableOrdersTest, AnOrderThatComesAgainIsCarriedOutOnce) {
  const auto table = make_table();
  const auto orders = server(0, 1, table);
  look_up(*table, ids());
  TableOrder order{.number = 1, .table = "t", .rule = {.clock = 1, .shrink = {.delete_unseen = 1}}};
  EXPECT_EQ(orders->carry_out(0, order, kUntouched).rows, 0U);
  EXPECT_EQ(orders->carry_out(0, order, kUntouched).rows, 0U);
  order.number = 2;
  const TableAnswer second = orders->carry_out(0, order, kUntouched);
  EXPECT_EQ(second.why, "");
  EXPECT_EQ(second.rows, 100U);
  EXPECT_EQ(orders->carry_out(0, order, kUntouched).rows, 100U) << "the answer is the first one's";
  const TableAnswer other = orders->carry_out(
      1, {.number = 2, .table = "t", .action = Action::kTellStatistics}, kUntouched);
  EXPECT_EQ(other.statistics.evicted, 100U) << "another worker's orders have numbers of their own";
}

TEST_F(TableOrdersTest, AnOlderOrderIsRefused) {
  const auto orders = server(0, 1, make_table());
  const TableOrder second{.number = 2, .table = "t", .rule = {.clock = 1}};
  EXPECT_EQ(orders->carry_out(0, second, kUntouched).why, "");
  for (const uint64_t number : {0U, 1U}) {
    TableOrder late = second;
    late.number = number;
    EXPECT_NE(orders->carry_out(0, late, kUntouched).why.find("above 2"), std::string::npos);
  }
}

// A delta has its number when all servers have written it.
TEST_F(TableOrdersTest, ADeltaThatIsDroppedComesAgain) {
  const auto table = make_table();
  const auto orders = server(0, 1, table);
  look_up(*table, ids());
  const auto order = [&](Action action, const std::string& name) {
    return rows_of(*orders, {.action = action, .files = {file(name)}, .delta = true});
  };
  const auto delta_number = [&] {
    return table->reading([](const GrowingTable& rows) { return rows.delta_number(); });
  };
  EXPECT_EQ(order(Action::kSave, "1.delta"), 100U);
  EXPECT_FALSE(std::filesystem::exists(file("1.delta")));
  order(Action::kDrop, "");
  EXPECT_EQ(delta_number(), 0U);
  EXPECT_EQ(order(Action::kSave, "1.delta"), 100U) << "all rows are in the next one";
  order(Action::kCommit, "");
  EXPECT_TRUE(std::filesystem::exists(file("1.delta")));
  EXPECT_EQ(delta_number(), 1U);
  EXPECT_EQ(order(Action::kSave, "2.delta"), 0U);
}

TEST_F(TableOrdersTest, WorkInTheBackgroundGoesInOrder) {
  std::vector<int> done;
  {
    const auto orders = server(0, 1, make_table());
    for (int i = 0; i < 5; ++i) orders->later([&done, i] { done.push_back(i); });
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST_F(TableOrdersTest, ServersShareTheRowsThatMayStay) {
  const auto table = make_table();
  const auto orders = server(1, 3, table);
  look_up(*table, ids());
  const TableOrder order{
      .number = 1, .table = "t", .rule = {.rank = fluid::tables::RowRank::kSeen, .most_rows = 100}};
  EXPECT_EQ(orders->carry_out(0, order, kUntouched).rows, 100U - 34);
}

TEST_F(TableOrdersTest, ReadsItsOwnRowsOfWhatServersSaved) {
  const auto saved = make_table();
  const auto writer = server(0, 1, saved);
  look_up(*saved, ids());
  const TableAnswer answer = writer->carry_out(
      0, {.number = 1, .table = "t", .action = Action::kSave, .files = {file("a.table")}},
      kUntouched);
  EXPECT_EQ(answer.why, "");
  EXPECT_EQ(answer.rows, 100U);
  EXPECT_EQ(fluid::table_options(answer.options, "other", 0).seed, 3U);
  uint64_t rows = 0;
  for (uint32_t index = 0; index < 2; ++index) {
    const auto table = make_table();
    const auto reader = server(index, 2, table);
    const TableAnswer read = reader->carry_out(
        0, {.number = 1, .table = "t", .action = Action::kLoad, .files = {file("a.table")}},
        kUntouched);
    EXPECT_EQ(read.why, "");
    rows += read.rows;
    EXPECT_EQ(table->statistics().rows, 0U) << "other servers may be unable to read theirs";
    EXPECT_EQ(
        reader->carry_out(0, {.number = 2, .table = "t", .action = Action::kCommit}, kUntouched)
            .why,
        "");
    for (const uint64_t id : ids()) {
      const bool here = table->reading([id](const GrowingTable& all) { return all.contains(id); });
      EXPECT_EQ(here, fluid::server_of_id(id, 2) == index) << id;
    }
  }
  EXPECT_EQ(rows, 100U);
}

TEST_F(TableOrdersTest, SavesWithoutStatesForWhoeverOnlyLooksUp) {
  const auto table = make_table();
  const auto orders = server(0, 1, table);
  look_up(*table, ids());
  TableOrder order{.number = 1, .table = "t", .action = Action::kSave, .files = {file("a.table")}};
  orders->carry_out(0, order, kUntouched);
  order.number = 2;
  order.states = false;
  order.files = {file("b.table")};
  orders->carry_out(0, order, kUntouched);
  EXPECT_EQ(std::filesystem::file_size(file("a.table")) -
                std::filesystem::file_size(file("b.table")) - 100 * 2 * sizeof(float),
            std::string("moment").size() + 4 + 8 + 4)
      << "rows have no states, and the header does not name them";
  const auto read = make_table();
  const auto reader = server(0, 1, read);
  for (const TableOrder& step :
       {TableOrder{.number = 1, .table = "t", .action = Action::kLoad, .files = {file("b.table")}},
        TableOrder{.number = 2, .table = "t", .action = Action::kCommit}}) {
    EXPECT_EQ(reader->carry_out(0, step, kUntouched).why, "");
  }
  std::vector<std::vector<float>> rows[2];
  for (const auto& [at, from] : {std::pair(0, table), std::pair(1, read)}) {
    from->reading([&, number = at](const GrowingTable& all) {
      all.scan(0, fluid::tables::kBuckets, [&](const fluid::tables::RowView& row) {
        rows[number].emplace_back(row.values.begin(), row.values.end());
        rows[number].back().insert(rows[number].back().end(), row.states.begin(), row.states.end());
      });
    });
    std::sort(rows[at].begin(), rows[at].end());
  }
  EXPECT_EQ(rows[0], rows[1]) << "states begin anew, as they were";
}

TEST_F(TableOrdersTest, ALoadThatIsDroppedChangesNothing) {
  const auto table = make_table();
  const auto orders = server(0, 1, table);
  look_up(*table, ids());
  uint64_t number = 0;
  const auto order = [&](Action action) {
    return orders->carry_out(
        0, {.number = ++number, .table = "t", .action = action, .files = {file("a.table")}},
        kUntouched);
  };
  EXPECT_EQ(order(Action::kSave).why, "");
  look_up(*table, {1000, 1001});
  EXPECT_EQ(order(Action::kLoad).rows, 100U);
  EXPECT_EQ(order(Action::kDrop).why, "");
  EXPECT_NE(order(Action::kCommit).why.find("nothing waits"), std::string::npos);
  EXPECT_EQ(table->statistics().rows, 102U);
}

// What is looked up meanwhile is in no file, and a save that does not come costs nothing.
TEST_F(TableOrdersTest, SavesWhatWasSetApart) {
  const auto table = make_table();
  const auto orders = server(0, 1, table);
  look_up(*table, ids());
  const auto order = [&](Action action, const std::string& name) {
    return rows_of(*orders, {.action = action, .files = {file(name)}});
  };
  order(Action::kSetApart, "");
  look_up(*table, {1000, 1001});
  EXPECT_EQ(order(Action::kSave, "a.table"), 100U);
  EXPECT_EQ(order(Action::kSave, "b.table"), 102U) << "as the table is now";
  const auto is_kept = [&] {
    return table->alone([](const GrowingTable& rows) { return rows.is_being_saved(); });
  };
  order(Action::kSetApart, "");
  EXPECT_TRUE(is_kept());
  order(Action::kDrop, "");
  EXPECT_FALSE(is_kept());
}

TEST_F(TableOrdersTest, SaysWhyItDoesNot) {
  const auto orders = server(0, 1, make_table());
  uint64_t number = 0;
  const auto expect = [&](TableOrder order, const std::string& text, bool untouched = true) {
    order.number = ++number;
    const std::string why = orders->carry_out(0, order, [untouched] { return untouched; }).why;
    EXPECT_NE(why.find(text), std::string::npos) << why;
  };
  expect({.table = "u"}, "'u'");
  expect({.table = "t", .rule = {.rank = fluid::tables::RowRank::kCount, .most_rows = 1}},
         "fields.count");
  expect({.table = "t", .rule = {.shrink = {.delete_below = 1}}}, "fields.score");
  expect({.table = "t", .rule = {.shrink = {.decay = 0.5}}}, "fields.score");
  expect({.table = "t", .rule = {.evict_below = std::nan("")}}, "no number");
  expect({.table = "t", .action = Action::kSave, .files = {"/elsewhere/a.table"}},
         "FLEET_SERVER_FOLDERS");
  expect({.table = "t", .action = Action::kLoad, .files = {file("none.table")}}, "none.table");
  expect({.table = "t", .action = Action::kLoad, .files = {file("none.table")}}, "first step",
         false);
  expect({.table = "t", .action = static_cast<Action>(7)}, "7");
}

}  // namespace
}  // namespace fleet::strategies

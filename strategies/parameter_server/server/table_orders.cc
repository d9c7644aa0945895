#include "strategies/parameter_server/server/table_orders.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/tables/table_loading.h"
#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {

using fluid::tables::GrowingTable;
using fluid::tables::SharedTable;

TableAnswer TableOrders::carry_out(uint32_t worker, const TableOrder& order,
                                   const std::function<bool()>& untouched) {
  const std::lock_guard lock(mutex_);
  Done& last = last_[worker];
  if (order.number == last.number && order.number > 0) return last.answer;
  TableAnswer answer;
  const Status status = outcome_of([&] {
    if (order.number < last.number || order.number == 0) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "an order for a growing table comes late",
                                                .where = str_cat("worker ", worker),
                                                .expected = str_cat("a number above ", last.number),
                                                .got = str_cat(order.number),
                                                .fix = "give orders one after the other"});
    }
    act(order, untouched, answer);
  });
  if (!status.ok()) {
    answer.why = status.to_string();
    answer.code = status.code();
  }
  if (order.number > last.number) last = {order.number, answer};
  return answer;
}

void TableOrders::later(std::function<void()> work) {
  {
    const std::lock_guard lock(waiting_mutex_);
    waiting_.push_back(std::move(work));
    if (std::exchange(works_, true)) return;
  }
  background_->start([this] { run_waiting(); });
}

void TableOrders::run_waiting() {
  while (true) {
    std::function<void()> work;
    {
      const std::lock_guard lock(waiting_mutex_);
      works_ = !waiting_.empty();
      if (!works_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

void TableOrders::act(const TableOrder& order, const std::function<bool()>& untouched,
                      TableAnswer& answer) {
  const auto table = table_of(order);
  switch (order.action) {
    case TableOrder::Action::kEndPass:
      answer.rows =
          table->alone([&](GrowingTable& rows) { return rows.end_pass(order.rule, servers_); });
      return;
    case TableOrder::Action::kTellStatistics:
      answer.statistics = table->statistics();
      return;
    case TableOrder::Action::kSave:
      return save(order, answer);
    case TableOrder::Action::kCommit:
      return commit(order);
    case TableOrder::Action::kDrop:
      set_apart_.erase(order.table);
      waiting_for_commit_.erase(order.table);
      return;
    case TableOrder::Action::kSetApart:
      set_apart_[order.table] = begin_save(order);
      return;
    case TableOrder::Action::kLoad:
      if (untouched()) return load(order, answer);
      throw_error(ErrorCode::kPrecondition,
                  {.what = "a growing table is loaded before the first step only",
                   .where = str_cat("growing table '", order.table, "'"),
                   .expected = "no gradient yet",
                   .got = "a job that trains",
                   .fix = "load the model before any worker's first step"});
  }
  throw_error(ErrorCode::kInvalidArgument, {.what = "a growing table has no such action",
                                            .where = str_cat("growing table '", order.table, "'"),
                                            .expected = "0 to 6",
                                            .got = str_cat(static_cast<uint32_t>(order.action)),
                                            .fix = "run the same release in every process"});
}

std::unique_ptr<fluid::io::TableSave> TableOrders::begin_save(const TableOrder& order) const {
  return std::make_unique<fluid::io::TableSave>(
      table_of(order), std::filesystem::path(),
      fluid::tables::TableSaveOptions{
          .delta = order.delta, .part = index_, .parts = servers_, .states = order.states},
      files_);
}

void TableOrders::save(const TableOrder& order, TableAnswer& answer) {
  auto apart = set_apart_.extract(order.table);
  const auto place = folders_.place_for(order.files.empty() ? std::string() : order.files.front());
  std::shared_ptr<fluid::io::TableSave> save =
      apart.empty() ? begin_save(order) : std::move(apart.mapped());
  save->open(place);
  answer.options = fluid::table_attributes(table_of(order)->options());
  if (order.delta) {
    answer.rows = save->write();
    waiting_for_commit_[order.table] = [save] { save->commit(); };
  } else {
    answer.rows = save->finish();
  }
}

void TableOrders::load(const TableOrder& order, TableAnswer& answer) {
  const auto table = table_of(order);
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path file : order.files) {
    files.push_back(folders_.folder_at(file.parent_path()) / file.filename());
  }
  const auto mine = [index = index_, servers = servers_](uint32_t bucket) {
    return fluid::server_of_bucket(bucket, servers) == index;
  };
  const auto loader =
      std::make_shared<fluid::tables::TableLoader>(table->options(), files, mine, files_);
  answer.rows = loader->rows();
  waiting_for_commit_[order.table] = [table, loader] {
    table->alone([&](GrowingTable& rows) { return loader->put_into(rows); });
  };
}

void TableOrders::commit(const TableOrder& order) {
  const auto waiting = waiting_for_commit_.extract(order.table);
  if (!waiting.empty()) return waiting.mapped()();
  throw_error(ErrorCode::kPrecondition, {.what = "nothing waits to be put in its place",
                                         .where = str_cat("growing table '", order.table, "'"),
                                         .expected = "a delta or a load before it",
                                         .got = "none",
                                         .fix = "write the delta, or load the table, again"});
}

std::shared_ptr<SharedTable> TableOrders::table_of(const TableOrder& order) const {
  const auto found = tables_.find(order.table);
  if (found != tables_.end()) return found->second;
  throw_error(ErrorCode::kUnknownName, {.what = "a server has no such growing table",
                                        .where = str_cat("server ", index_),
                                        .expected = "a table that the program trains",
                                        .got = str_cat("'", order.table, "'"),
                                        .fix = "name one that sparse_embedding has made"});
}

}  // namespace fleet::strategies

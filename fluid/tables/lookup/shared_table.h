// A growing table as the value of a variable: one object that shards of a step, threads of trainers
// and executors call at once.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "fluid/core/scope.h"
#include "fluid/tables/growing_table.h"

namespace fleet::fluid {
namespace tables {

// Any thread. What is called must not call the same object again: it would wait for itself.
class SharedTable {
 public:
  enum class Rows { kAll, kSome };  // of a job's table
  explicit SharedTable(TableOptions options, Rows rows = Rows::kAll)
      : rows_(rows), table_(std::move(options)) {}

  // Others of the job have rows of the table as well: it is not to be saved as if it were whole.
  bool is_part() const { return rows_ == Rows::kSome; }

  const TableOptions& options() const { return table_.options(); }

  // Calls call(table) while nobody else does anything with the table. As for calls of training, and
  // for the ends of passes:
  //   growing_table(scope, "ctr")->alone([](auto& table) { return table.shrink({.decay = 0.98});
  //   });
  template <class Call>
  auto alone(const Call& call) {
    const std::unique_lock lock(mutex_);
    return call(table_);
  }
  // The same of calls that change nothing; several may go on at once.
  template <class Call>
  auto reading(const Call& call) const {
    const std::shared_lock lock(mutex_);
    return call(table_);
  }

  TableStatistics statistics() const {
    return reading([](const GrowingTable& table) { return table.statistics(); });
  }
  // None while somebody has the table for itself.
  std::optional<TableStatistics> statistics_now() const {
    const std::shared_lock lock(mutex_, std::try_to_lock);
    if (!lock) return std::nullopt;
    return table_.statistics();
  }

 private:
  const Rows rows_;
  mutable std::shared_mutex mutex_;
  GrowingTable table_;
};

// The value of a variable that has this table.
Value table_value(std::shared_ptr<SharedTable> table);
// The table that a value is; null for any other value. Copies of the value are the same table.
std::shared_ptr<SharedTable> table_of(const Value& value);

}  // namespace tables

// The table of that name, here or in a parent; throws ProgramError when there is no such variable
// or it is no growing table, which it becomes when the startup program runs.
std::shared_ptr<tables::SharedTable> growing_table(const Scope& scope, std::string_view name);

}  // namespace fleet::fluid

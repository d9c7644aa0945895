// What workers have a server do with its growing tables, one order at a time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/files/file_system.h"
#include "base/process/background.h"
#include "fluid/io/growing_tables.h"
#include "fluid/tables/lookup/shared_table.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "strategies/parameter_server/server/checkpoint/save_folders.h"

namespace fleet::strategies {

// Any thread. Destroying it waits for what is begun.
class TableOrders {
 public:
  // This server is number `index` of `servers`.
  TableOrders(uint32_t index, uint32_t servers, SaveFolders folders, FileSystem& files,
              std::unique_ptr<Background> background)
      : index_(index),
        servers_(servers),
        folders_(std::move(folders)),
        files_(files),
        background_(std::move(background)) {}

  void add_table(const std::string& name, std::shared_ptr<fluid::tables::SharedTable> table) {
    tables_[name] = std::move(table);
  }

  // A worker's orders have ascending numbers. One with the number of the last one is not carried
  // out again, an older one is refused. Tables are loaded while `untouched`.
  TableAnswer carry_out(uint32_t worker, const TableOrder& order,
                        const std::function<bool()>& untouched);
  // The same in the background, behind those before it; `work` calls it.
  void later(std::function<void()> work);

 private:
  void act(const TableOrder& order, const std::function<bool()>& untouched, TableAnswer& answer);
  std::unique_ptr<fluid::io::TableSave> begin_save(const TableOrder& order) const;
  void save(const TableOrder& order, TableAnswer& answer);
  void load(const TableOrder& order, TableAnswer& answer);
  void commit(const TableOrder& order);
  std::shared_ptr<fluid::tables::SharedTable> table_of(const TableOrder& order) const;
  void run_waiting();

  const uint32_t index_;
  const uint32_t servers_;
  const SaveFolders folders_;
  FileSystem& files_;
  std::map<std::string, std::shared_ptr<fluid::tables::SharedTable>> tables_;

  struct Done {
    uint64_t number = 0;
    TableAnswer answer;
  };
  std::mutex mutex_;  // guards the next three, and is held while an order is carried out
  std::map<uint32_t, Done> last_;  // by worker
  // By table: what is set apart for a save, and what kCommit does.
  std::map<std::string, std::unique_ptr<fluid::io::TableSave>> set_apart_;
  std::map<std::string, std::function<void()>> waiting_for_commit_;

  std::mutex waiting_mutex_;  // guards the next two
  std::deque<std::function<void()>> waiting_;
  bool works_ = false;
  const std::unique_ptr<Background> background_;
};

}  // namespace fleet::strategies

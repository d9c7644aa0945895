// The rows of a growing table in a worker that trains alone (local_training.h). It has a table of
// its own, with the states of its optimizer, and of each row what the servers had when they were
// last asked. Rows come from the servers when a lookup wants them: under GEO again in each round,
// which ends with an exchange, and under EASGD once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fluid/core/value.h"
#include "fluid/tables/lookup/shared_table.h"
#include "fluid/tables/store/row_store.h"
#include "strategies/parameter_server/worker/rows/kept_rows.h"

namespace fleet::strategies {

// Of one thread, but for the table. Memory: the rows that were looked up, with their states, under
// GEO their values once more, and a note of each; ids without a row have one, too, until there are
// too many.
class LocalRows final : public KeptRows {
 public:
  enum class Asks { kEachRound, kOnce };
  // `table` has no rows yet, and no limit of memory: a row that went and came again would start
  // anew, and so would the servers'.
  LocalRows(std::shared_ptr<fluid::tables::SharedTable> table, Asks asks);

  const std::shared_ptr<fluid::tables::SharedTable>& table() const { return table_; }

  // Lookups of training: find() first, then keep() for the others. An id that is not admitted gets
  // no row, and reads what rows start from.
  std::vector<bool> find(std::span<const uint64_t> ids, uint64_t step, float* values) override;
  void keep(std::span<const uint64_t> ids, uint64_t step, float* values) override;

  // The rows that were looked up in this round, which is over then.
  std::vector<uint64_t> take_touched();
  // Differences of rows (protocol/local_exchange.h), without those that are zeros. `centre`: what
  // the servers have, [ids, width].
  fluid::SelectedRows geo_differences(std::span<const uint64_t> ids, uint32_t workers);
  fluid::SelectedRows elastic_differences(std::span<const uint64_t> ids, const float* centre,
                                          double alpha);
  // GEO: the servers' values count from here on, whatever was trained here.
  void forget_differences();
  // For tests: rows that find() would find; nothing is noted.
  std::vector<bool> read(std::span<const uint64_t> ids, float* values) const;

 private:
  // Behind the servers' values.
  struct Note {
    uint32_t round = 0;    // the last one that looked the row up
    uint32_t has_row = 0;  // 1: the table had one then
  };

  Note note_of(const std::byte* row) const;
  bool is_here(uint64_t id, const std::byte* row, const fluid::tables::GrowingTable& table) const;
  void touch(uint64_t id, std::byte* row, bool has_row);
  // The servers' values of a row.
  std::span<float> servers_values(std::byte* row) const {
    return {reinterpret_cast<float*>(row), kept_width_};
  }
  void make_store();
  void forget_ids_without_rows();

  const std::shared_ptr<fluid::tables::SharedTable> table_;
  const size_t width_;
  const size_t kept_width_;  // of the servers' values
  uint32_t round_ = 1;
  std::unique_ptr<fluid::tables::RowStore> servers_;
  std::vector<uint64_t> touched_;  // in this round
  uint64_t next_sweep_;            // notes from which on those without rows are forgotten
};

// The same rows for tests, which change nothing.
class RowsToRead final : public KeptRows {
 public:
  explicit RowsToRead(std::shared_ptr<const LocalRows> rows) : rows_(std::move(rows)) {}

  std::vector<bool> find(std::span<const uint64_t> ids, uint64_t, float* values) override {
    return rows_->read(ids, values);
  }
  void keep(std::span<const uint64_t>, uint64_t, float*) override {}

 private:
  const std::shared_ptr<const LocalRows> rows_;
};

}  // namespace fleet::strategies

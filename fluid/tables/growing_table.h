// The rows of one server's growing table: values of an embedding by id, with the states of their
// optimizer. A row is made when training first looks its id up or pushes a gradient for it, and
// lives until it is evicted.
//
// Memory. A row costs its values, states and RowFields, and at most 16 bytes more on average in
// tables of a million rows or more: its id, and what finds it (store/row_store.h).
//
// Threads. One call at a time. A call shares its work by the Tiles that it is given, and its
// results do not depend on them. Making a TableSaver and its collect() are such calls, too; its
// write() is not.
//
// Bits. What a row starts from, and which ids are admitted by a probability, are functions of seed,
// name and id. Everything else is a function of the calls that named a row's id, and of those that
// name none (set_clock, shrink, evict_…). So the rows of an id have the same bits on any server,
// with any other ids beside, in any order of calls' keys. But where a number of rows or ids, or of
// bytes, is the limit (evict_to, MemoryLimit, Admission::counted_ids), what is evicted depends on
// what else this server has.
//
// Ids are any 64 bits; int64 ids are cast. Those of a call are each given once: the caller makes
// them unique. rows() and apply() of an id that is given twice make one row, but may count it
// twice, or lose one of its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/process/tile_pool.h"
#include "fluid/tables/row_initializer.h"
#include "fluid/tables/row_layout.h"
#include "fluid/tables/row_updates.h"
#include "fluid/tables/store/buckets.h"
#include "fluid/tables/table_options.h"

namespace fleet::fluid::tables {

class RowStore;
struct RowPlace;

struct TableStatistics {
  uint64_t rows = 0;
  uint64_t bytes = 0;           // in use, with the index and what counts ids without rows
  uint64_t reserved_bytes = 0;  // that the system gave
  uint64_t counted_ids = 0;     // ids without a row that are counted
  // Since the table was made:
  uint64_t hits = 0;      // ids of rows() that had a row
  uint64_t misses = 0;    // and that had none: they got one or were refused
  uint64_t admitted = 0;  // rows made
  uint64_t refused = 0;   // lookups in training of ids that got no row
  uint64_t dropped = 0;   // gradients of ids that got no row
  uint64_t evicted = 0;   // rows

  // Of parts of one table.
  TableStatistics& operator+=(const TableStatistics& other);
  template <class Archive>
  void serialize(Archive& archive) {
    archive(rows, bytes, reserved_bytes, counted_ids, hits, misses, admitted, refused, dropped,
            evicted);
  }
};

// A row, as a visitor sees it.
struct RowView {
  uint64_t key = 0;
  std::span<const float> values;
  std::span<const float> states;  // all, one behind the other
  uint32_t seen = 0;              // 0 where rows have no such field, as with the next ones
  uint32_t count = 0;
  float show = 0;
  float click = 0;
};

// What shrink() does, as Paddle's CTR accessor at the end of a pass.
struct ShrinkRule {
  double decay = 1;  // of show and click
  // Rows below this score then go.
  double delete_below = -std::numeric_limits<double>::infinity();
  // And those that were not seen for more than so long.
  uint32_t delete_unseen = std::numeric_limits<uint32_t>::max();
};

// What the end of a pass, such as an epoch or a day, does to a table, in this order.
struct PassRule {
  uint32_t clock = 1;  // by which the table's clock goes on
  ShrinkRule shrink = {};
  // Rows that are less than this by `rank` go, and then the least ones, until so many are left. The
  // number is shared out among servers: it is the one rule that depends on how many there are.
  RowRank rank = RowRank::kSeen;
  double evict_below = -std::numeric_limits<double>::infinity();
  uint64_t most_rows = std::numeric_limits<uint64_t>::max();

  template <class Archive>
  void serialize(Archive& archive) {
    archive(clock, shrink.decay, shrink.delete_below, shrink.delete_unseen, rank, evict_below,
            most_rows);
  }
};

class GrowingTable {
 public:
  // Throws UsageError for options that make no sense.
  explicit GrowingTable(TableOptions options);
  ~GrowingTable();
  GrowingTable(const GrowingTable&) = delete;
  GrowingTable& operator=(const GrowingTable&) = delete;

  const TableOptions& options() const { return options_; }
  const RowLayout& layout() const { return layout_; }
  uint64_t size() const;
  TableStatistics statistics() const;

  // A number of the caller's that never becomes less: the step, the epoch, the day. Rows that are
  // looked up or updated in training have been seen then.
  void set_clock(uint32_t clock) { clock_ = clock; }
  uint32_t clock() const { return clock_; }

  // Lookups of training: `values` gets [keys, width]. Makes rows for ids that are admitted; the
  // others read what their rows would start from.
  void rows(std::span<const uint64_t> keys, float* values, Tiles tiles = {});

  enum class Missing { kInitial, kZero };
  // Lookups of tests and inference: change nothing. Ids without rows read what their rows would
  // start from, or zeros.
  void find(std::span<const uint64_t> keys, float* values, Missing missing, Tiles tiles = {}) const;
  bool contains(uint64_t key) const;

  // Gradients are [keys, width]. An id without a row gets one when its admission needs no lookups
  // (kAlways, kProbability); else its gradient is dropped.
  void apply(std::span<const uint64_t> keys, const float* gradients, const BlockUpdate& update,
             Tiles tiles = {});
  void apply(std::span<const uint64_t> keys, const float* gradients, const InPlaceUpdate& update,
             Tiles tiles = {});
  // Adds to show and click of rows, where rows have the field, and of ids that wait for one
  // (Admission::Kind::kScore).
  void add_shows(std::span<const uint64_t> keys, std::span<const float> shows,
                 std::span<const float> clicks);

  // Evictions return how many rows went. Equal ranks: the least id goes first.
  uint64_t evict(std::span<const uint64_t> keys);
  // Rows that were not seen for more than `age`. Needs RowFields::seen.
  uint64_t evict_unseen(uint32_t age);
  // The least ones by rank, until `rows` are left on this server.
  uint64_t evict_to(uint64_t rows, RowRank rank);
  // All that are less than `bound` by rank.
  uint64_t evict_below(double bound, RowRank rank);
  // Fields that rows lack are not asked.
  uint64_t shrink(const ShrinkRule& rule);
  // The table of a server of so many. Needs the fields that the rule asks for.
  uint64_t end_pass(const PassRule& rule, uint64_t servers = 1);
  // All of a bucket that another server has from now on, with ids that are counted: no eviction, so
  // deltas do not name its rows.
  void drop_bucket(uint32_t bucket);

  using Visitor = std::function<void(const RowView& row)>;
  // Rows of buckets [first, end), bucket by bucket, in no order inside one.
  void scan(uint32_t first, uint32_t end, const Visitor& visitor) const;
  // Makes the row of an id, or writes over it: values and then all states, layout().floats() of
  // them. Asks no admission.
  void put(uint64_t key, std::span<const float> values_and_states);

  // Rows get other values and keep their states; ids without rows are left out. `values`:
  // [keys, width].
  void set_values(std::span<const uint64_t> keys, const float* values);

  bool is_being_saved() const;
  // Of the last delta that was written of this table, or read into it.
  uint64_t delta_number() const { return delta_number_; }

 private:
  friend class TableSaver;
  friend class TableLoader;
  friend class DeltaReader;

  // Rows that a call made, and the places of their ids in the call.
  struct Made;
  // By tile, ids of a call that have no row.
  using Lacking = std::vector<std::vector<size_t>>;

  int64_t tile_keys(size_t floats) const;
  void saw(RowPlace place, std::byte* row, bool looked_up);
  void make_rows(std::span<const uint64_t> keys, const Lacking& lacking, float* values,
                 Tiles tiles);
  bool admit(uint64_t key, float& show, float& click);
  bool admit_by_count(uint64_t key);
  bool admit_by_score(uint64_t key, float& show, float& click);
  void start_row(RowPlace place);
  void settle(uint64_t key);
  void add_waiting(uint64_t key, float show, float click);
  void forget_waiting();
  template <class Sink>
  void apply_all(std::span<const uint64_t> keys, const float* gradients, Tiles tiles,
                 const Sink& make_sink);
  std::vector<size_t> make_for_gradients(std::span<const uint64_t> keys, const Lacking& lacking);
  template <class Gone>
  uint64_t erase(uint32_t bucket, const Gone& gone);
  uint64_t evict_least(uint64_t count, RowRank rank);
  void require_rank(RowRank rank, const char* call) const;
  void require_fields_of(const PassRule& rule) const;
  double score_of(const std::byte* row) const;
  void limit_memory();

  TableOptions options_;
  RowLayout layout_;
  std::vector<size_t> state_widths_;
  RowDraws draws_;
  uint32_t clock_ = 0;
  std::unique_ptr<RowStore> rows_;
  // Ids that wait for a row: key, then count and clock, or show and click.
  std::unique_ptr<RowStore> waiting_;
  uint64_t settled_ = 0;  // of them have got their rows, and are to be forgotten
  uint64_t delta_number_ = 0;
  std::vector<uint64_t> gone_;  // ids whose rows went since the last delta
  TableStatistics counts_;
};

}  // namespace fleet::fluid::tables

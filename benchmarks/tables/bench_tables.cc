// The growing table of one server: lookups, updates and memory of ten million rows, and sums of row
// gradients. One thread.
//
// What a lookup must read of memory that no cache has, for a row of 16 floats: the group of the
// index (64 bytes), and the two lines that the id and the values lie in. A gather by known position
// reads one line. Of the ids of a batch, which are unique, most are rare: so half of its speed is
// the target.

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/tables/large_table.h"
#include "benchmarks/tables/merge_peer.h"
#include "benchmarks/tables/table_files.h"
#include "benchmarks/tables/table_rows.h"
#include "fluid/tables/growing_table.h"
#include "fluid/tables/merge_rows.h"

namespace fleet::benchmarks {
namespace {

using namespace fluid::tables;

constexpr int kRounds = 9;
constexpr double kSeconds = 0.4;
constexpr size_t kBatches = 160;
constexpr size_t kDraws = 100'000;

class Sgd : public BlockUpdate {
 public:
  void update(const RowBlock& block) const override {
    const size_t floats = block.keys.size() * kTableWidth;
    for (size_t i = 0; i < floats; ++i) block.values[i] -= 0.01f * block.gradients[i];
  }
};

TableOptions table_options() {
  return {.name = "bench", .seed = 1, .width = kTableWidth};
}

std::unique_ptr<GrowingTable> full_table(const TableOptions& options) {
  auto table = std::make_unique<GrowingTable>(options);
  constexpr size_t kAtOnce = 50'000;
  std::vector<uint64_t> ids;
  std::vector<float> values(kAtOnce * options.width);
  for (uint64_t rank = 0; rank < kTableRows; rank += kAtOnce) {
    ids.clear();
    for (uint64_t i = rank; i < rank + kAtOnce; ++i) ids.push_back(id_of_rank(i));
    table->rows(ids, values.data());
  }
  return table;
}

using Batches = std::vector<std::vector<uint64_t>>;

// Rows per second of processor time, of a call for one batch after the other.
double rows_per_second(const Batches& batches,
                       const std::function<void(std::span<const uint64_t>)>& call) {
  size_t next = 0;
  double rows = 0;
  for (const auto& batch : batches) rows += static_cast<double>(batch.size());
  const double calls = rate_of(kSeconds, [&] {
                         call(batches[next]);
                         next = (next + 1) % batches.size();
                       }).processor;
  return calls * rows / static_cast<double>(batches.size());
}

struct PeerOfRows {
  const char* name;
  double target;
  BenchPeer kind;
  std::function<std::unique_ptr<RowPeer>(const Batches&)> make;
};
const PeerOfRows kStdMap = {"std::unordered_map", 5.0, BenchPeer::kSystem,
                            [](const Batches&) { return std_map_peer(); }};
const PeerOfRows kAbslMap = {"absl::flat_hash_map", 1.5, BenchPeer::kSystem,
                             [](const Batches&) { return absl_map_peer(); }};
const PeerOfRows kGather = {"prefetching gather by known position", 0.5, BenchPeer::kLimit,
                            [](const Batches& batches) { return gather_peer(batches); }};

std::function<Row(const Rounds&)> rows_against(const PeerOfRows& which, bool updates) {
  return [which, updates](const Rounds& rounds) {
    Row row = {.unit = "rows/s",
               .peer = which.name,
               .better = Better::kHigher,
               .kind = which.kind,
               .target = which.target,
               .note = instruction_set() + ", processor time, 10 M rows, zipf"};
    const Batches batches = zipf_batches(kBatches, kDraws);
    const std::unique_ptr<RowPeer> peer = which.make(batches);
    if (peer == nullptr) {
      row.skipped = which.name;
      return row;
    }
    const auto table = full_table(table_options());
    std::vector<float> numbers(kDraws * kTableWidth, 0.5f);
    const Sgd sgd;
    const auto ours = [&](std::span<const uint64_t> ids) {
      if (updates) {
        table->apply(ids, numbers.data(), sgd);
      } else {
        table->rows(ids, numbers.data());
      }
    };
    const auto theirs = [&](std::span<const uint64_t> ids) {
      if (updates) {
        peer->update(ids, numbers.data());
      } else {
        peer->lookup(ids, numbers.data());
      }
    };
    row.take(rounds.pairs(
        kRounds, [&] { return rows_per_second(batches, ours); },
        [&] { return rows_per_second(batches, theirs); }));
    return row;
  };
}

std::function<Row(const Rounds&)> bytes_of(size_t states, RowFields fields) {
  return [=](const Rounds& rounds) {
    TableOptions options = table_options();
    for (size_t s = 0; s < states; ++s) options.states.push_back({str_cat(s), kTableWidth, 0});
    options.fields = fields;
    const size_t rule = 4 * (fields.seen + fields.count + 2 * fields.score);
    const auto least = static_cast<double>((1 + states) * kTableWidth * sizeof(float) + rule + 16);
    const double before = resident_bytes();
    const auto table = full_table(options);
    const double each = (resident_bytes() - before) / static_cast<double>(kTableRows);
    Row row = {.unit = "B",
               .peer = "payload, 16 bytes and the rule's metadata",
               .better = Better::kLower,
               .kind = BenchPeer::kFixed,
               .target = 1.0,
               .note = str_cat("resident; in use ",
                               tools::significant(static_cast<double>(table->statistics().bytes) /
                                                  static_cast<double>(kTableRows)))};
    row.take(rounds.pairs(
        1, [&] { return each; }, [&] { return least; }));
    return row;
  };
}

struct Contributions {
  std::vector<std::vector<uint64_t>> keys;
  std::vector<std::vector<float>> values;
  std::vector<ContributedRows> rows;
};

Contributions contributions(size_t contributors, size_t rows, size_t width, int bits, bool sorted) {
  Contributions all;
  std::mt19937_64 random(9);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  for (size_t c = 0; c < contributors; ++c) {
    std::vector<uint64_t> keys;
    std::set<uint64_t> seen;
    while (keys.size() < rows) {
      // A cubed draw: some ids are in many contributions, most in one.
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      const auto rank = static_cast<uint64_t>(u * u * u * 0x1p20);
      const uint64_t key = (bits <= 20 ? rank : id_of_rank(rank)) & mask;
      if (seen.insert(key).second) keys.push_back(key);
    }
    if (sorted) std::sort(keys.begin(), keys.end());
    all.keys.push_back(std::move(keys));
    all.values.emplace_back(rows * width, static_cast<float>(c));
  }
  for (size_t c = 0; c < contributors; ++c) {
    all.rows.push_back({all.keys[c], all.values[c].data()});
  }
  return all;
}

std::function<Row(const Rounds&)> merge(int bits, bool sorted) {
  return [=](const Rounds& rounds) {
    constexpr size_t kWidth = 10;
    const Contributions all = contributions(64, 26'000, kWidth, bits, sorted);
    MergePeer peer(all.rows, kWidth, bits);
    MergedRows merged;
    merge_rows(all.rows, kWidth, merged);
    Row row = {.unit = "ms",
               .peer = "radix sort, one read of all values, one write of the sums",
               .better = Better::kLower,
               // All 64 bits need not be sorted digit by digit: that is no limit.
               .kind = bits == 64 ? BenchPeer::kReference : BenchPeer::kLimit,
               .note = str_cat(instruction_set(), ", processor time, ids of ", bits, " bits, ",
                               merged.keys.size(), " sums")};
    if (bits != 64) row.target = 0.7;
    const auto milliseconds = [](const std::function<void()>& call) {
      return 1e3 / rate_of(kSeconds, call).processor;
    };
    row.take(rounds.pairs(
        kRounds, [&] { return milliseconds([&] { merge_rows(all.rows, kWidth, merged); }); },
        [&] { return milliseconds([&] { peer.run(); }); }));
    return row;
  };
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(
      argc, argv, "The growing table of one server, and sums of row gradients.",
      {{"table_lookup_std_map", rows_against(kStdMap, false)},
       {"table_lookup_absl", rows_against(kAbslMap, false)},
       {"table_lookup_gather", rows_against(kGather, false)},
       {"table_update_std_map", rows_against(kStdMap, true)},
       {"table_update_absl", rows_against(kAbslMap, true)},
       {"table_update_gather", rows_against(kGather, true)},
       {"table_bytes", bytes_of(0, {})},
       {"table_bytes_adagrad", bytes_of(1, {.seen = true})},
       {"table_bytes_adam", bytes_of(2, {.seen = true, .count = true, .score = true})},
       {"merge_rows_64", merge(20, true)},
       {"merge_rows_64_unsorted", merge(20, false)},
       {"merge_rows_64_wide", merge(64, true)},
       {"table_save", table_save},
       {"table_load", [](const Rounds& rounds) { return table_load(rounds, false); }},
       {"table_load_cached", [](const Rounds& rounds) { return table_load(rounds, true); }},
       {"tables_1e7_in_process",
        [](const Rounds& rounds) { return large_table(rounds, 10'000'000, false); }},
       {"tables_1e8_in_process",
        [](const Rounds& rounds) { return large_table(rounds, 100'000'000, true); }}});
}

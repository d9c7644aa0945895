#include "benchmarks/tables/large_table.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "benchmarks/tables/table_rows.h"
#include "fluid/tables/growing_table.h"

namespace fleet::benchmarks {
namespace {

using namespace fluid::tables;

constexpr size_t kWidth = 8;
constexpr uint64_t kAtOnce = 50'000;

class Subtract : public InPlaceUpdate {
 public:
  void update(std::span<const RowInPlace> rows) const override {
    for (const RowInPlace& row : rows) {
      for (size_t i = 0; i < kWidth; ++i) row.row[i] -= 0.01f * row.gradient[i];
    }
  }
};

double available_bytes() {
  std::ifstream memory("/proc/meminfo");
  double kilobytes = 0;
  for (std::string word; memory >> word;) {
    if (word == "MemAvailable:") memory >> kilobytes;
  }
  return 1024 * kilobytes;
}

// Calls call(ids) for all ids, so many at once, in an order of its own. Rows per second.
double rows_per_second(uint64_t rows, uint64_t stride,
                       const std::function<void(std::span<const uint64_t>)>& call) {
  std::vector<uint64_t> ids;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t done = 0; done < rows; done += kAtOnce) {
    ids.clear();
    for (uint64_t i = done; i < std::min(rows, done + kAtOnce); ++i) {
      ids.push_back(id_of_rank(i * stride % rows));
    }
    call(ids);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(rows) / took.count();
}

}  // namespace

Row large_table(const Rounds& rounds, uint64_t table_rows, bool full) {
  Row row = {.unit = "MB",
             .peer = "bytes that the table uses",
             .better = Better::kLower,
             .kind = BenchPeer::kFixed,
             .target = 1 / 1.1};
  const auto rows = static_cast<double>(table_rows);
  const double needed = 60 * rows;
  if (full && !rounds.full_size()) row.skipped = "it takes minutes: give --full";
  if (available_bytes() < needed) row.skipped = str_cat(needed / 1e9, " GB of free memory");
  if (!row.skipped.empty()) return row;
  const double before = resident_bytes();
  GrowingTable table({.name = "large", .seed = 1, .width = kWidth});
  std::vector<float> numbers(kAtOnce * kWidth, 0.5f);
  constexpr uint64_t kPrime = 7'368'787;  // divides no number of rows here
  const double made = rows_per_second(
      table_rows, 1, [&](std::span<const uint64_t> ids) { table.rows(ids, numbers.data()); });
  const double found = rows_per_second(
      table_rows, kPrime, [&](std::span<const uint64_t> ids) { table.rows(ids, numbers.data()); });
  const Subtract update;
  const double updated = rows_per_second(table_rows, kPrime, [&](std::span<const uint64_t> ids) {
    table.apply(ids, numbers.data(), update);
  });
  const auto used = static_cast<double>(table.statistics().bytes);
  row.note = str_cat("one process, one thread; ", tools::significant(used / rows),
                     " B a row; million rows a second: made ", tools::significant(made / 1e6),
                     ", looked up ", tools::significant(found / 1e6), ", updated ",
                     tools::significant(updated / 1e6));
  row.take(rounds.pairs(
      1, [&] { return (resident_bytes() - before) / 1e6; }, [&] { return used / 1e6; }));
  return row;
}

}  // namespace fleet::benchmarks

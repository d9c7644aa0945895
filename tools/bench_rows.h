// Rows that the benchmark programs write (--json), and the table and summary made of them.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fleet::tools {

struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  std::string peer;
  std::optional<double> peer_value;
  std::optional<double> ratio;   // how many times better than the peer we are
  std::optional<double> target;  // what the ratio should reach; a row without one only reports
  int rounds = 0;
  std::string note;                  // instruction set, spread, why the row is not valid
  bool valid = true;                 // false when the peer ran below what is known to be possible
  std::vector<double> placement_us;  // the placement probe before and after

  // Nothing for a row that only reports, has no ratio, or is not valid.
  std::optional<bool> met() const;
};

// The array in a benchmark's file. Throws ResourceError for a file that is not one.
std::vector<BenchRow> read_bench_rows(const std::filesystem::path& file);
std::vector<BenchRow> parse_bench_rows(const std::string& text, const std::string& where);

std::string bench_summary_json(std::span<const BenchRow> rows);
void print_bench_table(std::ostream& out, std::span<const BenchRow> rows);

}  // namespace fleet::tools

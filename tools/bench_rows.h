// Rows that the benchmark programs write (--json), what each of them says, and the table, the
// summary and the last line made of them.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fleet::tools {

enum class BenchVerdict {
  kReported,  // it has neither target nor bound
  kMet,
  kMissed,   // below its target, or beyond its bound
  kInvalid,  // the measurement proves nothing; the row says why
  kFailed,   // it did not run to its end; the row says why
  kSkipped,  // what it is measured against is not on this machine
};

// What a row is held against.
enum class BenchPeer {
  kSystem,     // another system
  kLimit,      // what the machine gives to a program written by hand: nothing is much faster
  kFixed,      // a figure in the sources
  kReference,  // what the figure is read beside: Fleet in another mode, the sum of its parts
};

struct BenchRow {
  std::string name;
  double value = 0;
  std::string unit;
  bool lower_is_better = false;
  std::string peer;
  BenchPeer peer_kind = BenchPeer::kSystem;
  std::optional<double> peer_value;
  std::optional<double> ratio;   // how many times better than the peer we are
  std::optional<double> target;  // what the ratio should reach; a row without one only reports
  // Of the rounds' ratios; nothing where the peer is not measured in rounds.
  std::optional<double> ratio_min;
  std::optional<double> ratio_max;
  // The worst value, in the row's unit, that is no regression; nothing where none is known.
  std::optional<double> bound;
  int rounds = 0;
  std::string note;
  std::vector<std::string> invalid;                    // why the row proves nothing
  std::string error;                                   // why it did not run to its end
  std::string skipped;                                 // what is missing on this machine
  std::vector<std::pair<std::string, double>> others;  // further figures, by what reached them
  double seconds = 0;                                  // that measuring took
  std::vector<double> placement_us;                    // the placement probe before and after
  std::string machine;
  std::string date;  // YYYY-MM-DD

  BenchVerdict verdict() const;
};

// "met", "missed", …; empty for a row that only reports.
const char* name_of(BenchVerdict verdict);

// The array in a benchmark's file. Throws ResourceError for a file that is not one.
std::vector<BenchRow> read_bench_rows(const std::filesystem::path& file);
std::vector<BenchRow> parse_bench_rows(const std::string& text, const std::string& where);

std::string bench_rows_json(std::span<const BenchRow> rows);
void print_bench_table(std::ostream& out, std::span<const BenchRow> rows);

// "12 rows: 8 met, 1 reported, 2 missed (a, b), 1 failed (c)": every row that did not do what it
// should is named.
std::string bench_last_line(std::span<const BenchRow> rows);
// Whether a row missed, is invalid or failed.
bool has_bench_problem(std::span<const BenchRow> rows);

// Of a message: its lines one after the other.
std::string one_line(std::string text);

// Three or so digits, for readers.
std::string significant(std::optional<double> value);

}  // namespace fleet::tools

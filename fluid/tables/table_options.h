// What a growing table is: the form of its rows, what they start from, and which ids get one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fleet::fluid::tables {

// What values of a new row are. Element i of the row of an id is a function of the table's seed and
// name, of the id and of i: the same bits whatever was there before, on whichever server.
struct RowInitializer {
  enum class Kind { kConstant, kUniform, kNormal, kTruncatedNormal };
  Kind kind = Kind::kConstant;
  double a = 0;  // the constant; the least value; the mean
  double b = 0;  // the bound above all values; the deviation

  static RowInitializer constant(double value);
  static RowInitializer uniform(double low, double high);
  static RowInitializer normal(double mean, double deviation);
  // Of values within two deviations of the mean.
  static RowInitializer truncated_normal(double mean, double deviation);
  // Glorot and Bengio, 2010, for a table with so many ids and values of an id.
  static RowInitializer xavier_uniform(double fan_in, double fan_out);
  static RowInitializer xavier_normal(double fan_in, double fan_out);
  bool operator==(const RowInitializer&) const = default;
};

// What an optimizer keeps of each row: Adam has two of the table's width.
struct RowState {
  std::string name;
  size_t width = 0;   // floats
  float initial = 0;  // of all of them
  bool operator==(const RowState&) const = default;
};

// Which ids get a row. The others read the values that their rows would start from, and their
// gradients are dropped.
struct Admission {
  enum class Kind {
    kAlways,
    // An id is in or out for good: a number drawn from the table's seed and the id is below
    // `probability`.
    kProbability,
    // An id's `count`-th lookup in training makes its row.
    kCount,
    // The first lookup in training after its score has reached `threshold` makes the row; scores
    // come by GrowingTable::add_shows().
    kScore,
  };
  Kind kind = Kind::kAlways;
  double probability = 1;
  uint32_t count = 1;
  double threshold = 0;
  // Ids without a row that are counted (kCount, kScore); each takes 20 to 22 bytes. When there are
  // more, those with the least count or score are forgotten, an eighth at a time. It is a limit of
  // memory: as with that one, how many servers there are then matters.
  uint64_t counted_ids = uint64_t{1} << 40;
};

// score = show_coefficient * show + click_coefficient * click. Paddle's CTR accessor writes
// nonclk_coeff * (show - click) + click_coeff * click: there, click_coefficient is click_coeff -
// nonclk_coeff.
struct ScoreRule {
  double show_coefficient = 0.1;
  double click_coefficient = 0.9;
  bool operator==(const ScoreRule&) const = default;
};

// What rows keep beside key, values and states: as much as the rules that are used need. 4 bytes
// each, show and click 4 each.
struct RowFields {
  bool seen = false;   // the table's clock when the row was last looked up or updated in training
  bool count = false;  // of lookups in training
  bool score = false;  // show and click
  bool operator==(const RowFields&) const = default;
};

// What rows are measured by when some have to go.
enum class RowRank {
  kSeen,   // least recently seen first
  kCount,  // least often looked up first
  kScore,  // least score first
  kNorm,   // least Euclidean norm of the values first
};

// The one rule that is not the same for any number of servers: each has its own memory.
struct MemoryLimit {
  // Of rows with their index; 0: none. After a call that leaves more in use, rows go, a sixteenth
  // of them at a time.
  uint64_t bytes = 0;
  RowRank rank = RowRank::kSeen;
};

struct TableOptions {
  std::string name;
  uint64_t seed = 0;
  size_t width = 0;  // floats of a row's value
  std::vector<RowState> states = {};
  RowInitializer initializer = {};
  Admission admission = {};
  ScoreRule score = {};
  RowFields fields = {};
  bool deltas =
      false;  // keeps what changed since the last delta: 1 bit a row, ids of rows that went
  MemoryLimit memory = {};
};

// Throws UsageError for options that make no sense together.
void check_options(const TableOptions& options);

}  // namespace fleet::fluid::tables

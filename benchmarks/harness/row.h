// What a benchmark measured, and the rules that say whether it proves anything.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/harness/measure.h"
#include "benchmarks/harness/stored.h"
#include "tools/bench_rows.h"

namespace fleet::benchmarks {

using tools::BenchPeer;

struct Row {
  double value = 0;
  std::string unit;
  std::string peer;
  double peer_value = 0;
  Better better = Better::kHigher;
  BenchPeer kind = BenchPeer::kSystem;  // kFixed gets a tight bound from Stored, too
  std::optional<double> target;         // of the ratio; nothing for rows that only report
  std::vector<double> ratios;  // of the rounds; empty where the peer is not measured in rounds
  int rounds = 1;
  std::string note;
  std::vector<std::string> invalid;  // why it proves nothing, as far as the row itself knows
  std::string skipped;               // the peer that this machine lacks
  // Further figures of the measurement, by what reached them, in the row's unit: where one is far
  // below what is known of it, the row is invalid, too.
  std::vector<std::pair<std::string, double>> others;

  // The median of the rounds' ratios; without them, of the two values.
  double ratio() const;
  // Takes values, ratios and rounds.
  void take(const Pairs& pairs);
};

// A limit that is beaten by more than this share is none.
inline constexpr double kLimitSlack = 0.05;
// A peer below this share of what is known of it was measured wrongly.
inline constexpr double kKnownShare = 0.85;
// A hand-written step may take this much of ours.
inline constexpr double kHandwrittenSlack = 1.1;
// What has a fixed limit may take this much of the best stored for the processor.
inline constexpr double kTightBound = 1.5;

// Adds a reason to `row.invalid` when the step that a peer's author wrote by hand is slower than
// ours allows. Both times are of processors, in the same unit.
void require_fast_handwritten_step(Row& row, double handwritten, double ours);

struct Machine {
  std::string processor;
  std::string instruction_set;

  static Machine here();
};

// The row as it is written: with the machine and the date of today, its verdict by all rules.
tools::BenchRow judge(const std::string& name, const Row& row, const Stored& stored,
                      const Machine& machine);

// A row that did not run to its end.
tools::BenchRow failed_row(const std::string& name, const std::string& error,
                           const Machine& machine);

}  // namespace fleet::benchmarks

#include "benchmarks/harness/row.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/strings.h"

namespace fleet::benchmarks {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

std::string percent(double share) {
  return str_cat(std::lround(100 * share), " %");
}

void add_note(std::string& notes, const std::string& note) {
  notes += str_cat(notes.empty() ? "" : ", ", note);
}

void check_limit(const Row& row, std::vector<std::string>& invalid) {
  if (row.kind != BenchPeer::kLimit || row.ratio() <= 1 + kLimitSlack) return;
  invalid.push_back(str_cat("the limit is beaten by ", percent(row.ratio() - 1)));
}

// A figure of this processor that is far below what is known proves that something went wrong. One
// of another processor with the same instruction set only hints at it.
void check_known(const std::string& name, const Row& row, const Stored& stored,
                 const Machine& machine, tools::BenchRow& judged) {
  auto figures = row.others;
  figures.emplace(figures.begin(), row.peer, row.peer_value);
  for (const auto& [who, value] : figures) {
    const auto own = stored.peer(machine.processor, name, who);
    const auto known = own ? own : stored.peer(machine.instruction_set, name, who);
    if (!known) continue;
    const double share = ratio_of(value, *known, row.better);
    if (share >= kKnownShare) continue;
    const std::string reason = str_cat(who, " reaches ", percent(share), " of the ",
                                       tools::significant(*known), " ", row.unit, " known of it");
    if (own) {
      judged.invalid.push_back(reason);
    } else {
      add_note(judged.note, str_cat(reason, " on another ", machine.instruction_set, " processor"));
    }
  }
}

}  // namespace

double Row::ratio() const {
  return ratios.empty() ? ratio_of(value, peer_value, better) : median(ratios);
}

void Row::take(const Pairs& pairs) {
  value = pairs.our_median();
  peer_value = pairs.peer_median();
  ratios = pairs.ratios(better);
  rounds = static_cast<int>(pairs.ours.size());
}

void require_fast_handwritten_step(Row& row, double handwritten, double ours) {
  if (handwritten <= kHandwrittenSlack * ours) return;
  row.invalid.push_back(
      str_cat("the hand-written step takes ", tools::significant(handwritten / ours), " of ours"));
}

Machine Machine::here() {
  return {.processor = processor_name(), .instruction_set = fleet::benchmarks::instruction_set()};
}

tools::BenchRow judge(const std::string& name, const Row& row, const Stored& stored,
                      const Machine& machine) {
  tools::BenchRow judged = {.name = name,
                            .value = row.value,
                            .unit = row.unit,
                            .lower_is_better = row.better == Better::kLower,
                            .peer = row.peer,
                            .peer_kind = row.kind,
                            .target = row.target,
                            .rounds = row.rounds,
                            .note = row.note,
                            .invalid = row.invalid,
                            .skipped = row.skipped,
                            .others = row.others,
                            .machine = machine.processor,
                            .date = today()};
  if (row.peer_value != 0) {
    judged.peer_value = row.peer_value;
    judged.ratio = row.ratio();
    check_limit(row, judged.invalid);
    check_known(name, row, stored, machine, judged);
  }
  if (!row.ratios.empty()) {
    const auto [low, high] = std::minmax_element(row.ratios.begin(), row.ratios.end());
    judged.ratio_min = *low;
    judged.ratio_max = *high;
  }
  if (row.kind != BenchPeer::kFixed) return judged;
  if (const auto best = stored.best(machine.processor, name)) {
    judged.bound = row.better == Better::kLower ? *best * kTightBound : *best / kTightBound;
  } else {
    add_note(judged.note, "no best stored for this processor");
  }
  return judged;
}

tools::BenchRow failed_row(const std::string& name, const std::string& error,
                           const Machine& machine) {
  return {.name = name, .error = error, .machine = machine.processor, .date = today()};
}

}  // namespace fleet::benchmarks

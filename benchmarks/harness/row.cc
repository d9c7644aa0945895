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

void check_limit(const Row& row, std::vector<std::string>& invalid) {
  if (row.kind != BenchPeer::kLimit || row.ratio() <= 1 + kLimitSlack) return;
  invalid.push_back(str_cat("the limit is beaten by ", percent(row.ratio() - 1)));
}

void check_known(const std::string& name, const Row& row, const Stored& stored,
                 const Machine& machine, std::vector<std::string>& invalid) {
  auto figures = row.others;
  figures.emplace(figures.begin(), row.peer, row.peer_value);
  for (const auto& [who, value] : figures) {
    auto known = stored.peer(machine.processor, name, who);
    if (!known) known = stored.peer(machine.instruction_set, name, who);
    if (!known) continue;
    const double share = ratio_of(value, *known, row.better);
    if (share >= kKnownShare) continue;
    invalid.push_back(str_cat(who, " reaches ", percent(share), " of the ",
                              tools::significant(*known), " ", row.unit, " known of it"));
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
                            .machine = machine.processor,
                            .date = today()};
  if (row.peer_value != 0) {
    judged.peer_value = row.peer_value;
    judged.ratio = row.ratio();
    check_limit(row, judged.invalid);
    check_known(name, row, stored, machine, judged.invalid);
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
    judged.note += str_cat(judged.note.empty() ? "" : ", ", "no best stored for this processor");
  }
  return judged;
}

tools::BenchRow failed_row(const std::string& name, const std::string& error,
                           const Machine& machine) {
  return {.name = name, .error = error, .machine = machine.processor, .date = today()};
}

}  // namespace fleet::benchmarks

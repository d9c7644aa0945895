#include "tools/bench_document.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "tools/svg.h"

namespace fleet::tools {
namespace {

constexpr const char* kBegin = "<!-- benchmarks:begin -->\n";
constexpr const char* kEnd = "<!-- benchmarks:end -->";

std::string cell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.replace(at, 1, "\\|");
  }
  return text;
}

std::string machines_and_days(std::span<const BenchRow> rows) {
  std::set<std::string> machines;
  std::set<std::string> days;
  for (const BenchRow& row : rows) {
    if (!row.machine.empty()) machines.insert(row.machine);
    if (!row.date.empty()) days.insert(row.date);
  }
  return str_cat("Measured on ", join(machines, "; "), ", ", join(days, ", "), ".");
}

std::string verdict_text(const BenchRow& row) {
  const std::string why = !row.error.empty()     ? row.error
                          : !row.skipped.empty() ? row.skipped
                                                 : join(row.invalid, "; ");
  return str_cat(name_of(row.verdict()), why.empty() ? "" : ": ", cell(one_line(why)));
}

std::string ratio_text(const BenchRow& row) {
  if (!row.ratio) return "";
  if (!row.ratio_min) return significant(row.ratio);
  return str_cat(significant(row.ratio), " (", significant(row.ratio_min), " to ",
                 significant(row.ratio_max), ")");
}

bool proves_something(const BenchRow& row) {
  const BenchVerdict verdict = row.verdict();
  return row.ratio && *row.ratio > 0 &&
         (verdict == BenchVerdict::kMet || verdict == BenchVerdict::kMissed ||
          verdict == BenchVerdict::kReported);
}

std::string number(double value) {
  return std::to_string(std::lround(value));
}

constexpr const char* kStyle =
    "<style>text{font:13px sans-serif;fill:#222}.tick{font-size:11px}.page{fill:#fff}"
    ".bar{fill:#4878cf}.grid{stroke:#8884}.one{stroke:#888}"
    ".target{stroke:#d65f5f;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#ddd}"
    ".page{fill:#181818}}</style>";

constexpr double kLeft = 230;
constexpr double kBars = 440;
constexpr double kRow = 24;
constexpr double kTop = 62;

// Those that prove something, the largest ratio first.
std::vector<BenchRow> rows_of_chart(std::span<const BenchRow> rows) {
  std::vector<BenchRow> shown;
  for (const BenchRow& row : rows) {
    const bool counts = row.verdict() == BenchVerdict::kMet ||
                        row.verdict() == BenchVerdict::kMissed ||
                        row.verdict() == BenchVerdict::kReported;
    if (row.ratio && *row.ratio > 0 && counts) shown.push_back(row);
  }
  std::stable_sort(shown.begin(), shown.end(),
                   [](const BenchRow& a, const BenchRow& b) { return *a.ratio > *b.ratio; });
  return shown;
}

// Powers of two, 1 among them: a ratio of 64 leaves room to read one of 0.9.
class LogAxis {
 public:
  explicit LogAxis(std::span<const BenchRow> rows) {
    for (const BenchRow& row : rows) {
      for (const double value : {*row.ratio, row.target.value_or(1)}) {
        low_ = std::min(low_, static_cast<int>(std::floor(std::log2(value))));
        high_ = std::max(high_, static_cast<int>(std::ceil(std::log2(value))));
      }
    }
  }

  int low() const { return low_; }
  int high() const { return high_; }
  double x_of(double ratio) const {
    return kLeft + kBars * (std::log2(ratio) - low_) / (high_ - low_);
  }

 private:
  int low_ = 0;
  int high_ = 1;
};

}  // namespace

std::string bench_markdown(std::span<const BenchRow> rows) {
  std::string text = machines_and_days(rows) +
                     "\n\n| Row | Ours | Against | Theirs | Ratio (min to max) | Target | |\n"
                     "|---|---:|---|---:|---:|---:|---|\n";
  for (const BenchRow& row : rows) {
    text += str_cat("| `", row.name, "` | ", significant(row.value), " ", row.unit, " | ",
                    cell(row.peer), " | ", significant(row.peer_value), " | ", ratio_text(row),
                    " | ", significant(row.target), " | ", verdict_text(row), " |\n");
  }
  return text + "\n" + bench_last_line(rows) + ".\n";
}

std::string bench_brief_markdown(std::span<const BenchRow> rows) {
  std::string text =
      machines_and_days(rows) +
      " A ratio above 1 means that Fleet is better. Names say the net, the rows of a "
      "batch (`b32`), and the threads (`1t`) or processes (`_2_`).\n\n"
      "| Row | Fleet | Peer | Its value | Ratio (min to max) |\n"
      "|---|---:|---|---:|---:|\n";
  for (const BenchRow& row : rows) {
    if (row.peer_kind != BenchPeer::kSystem || !proves_something(row)) continue;
    text +=
        str_cat("| `", row.name, "` | ", significant(row.value), " ", row.unit, " | ",
                cell(row.peer), " | ", significant(row.peer_value), " | ", ratio_text(row), " |\n");
  }
  return text;
}

std::string bench_chart(std::span<const BenchRow> rows) {
  const std::vector<BenchRow> shown = rows_of_chart(rows);
  const LogAxis axis(shown);
  const double bottom = kTop + kRow * static_cast<double>(shown.size());
  constexpr const char* kTitle =
      "Ratio to the peer or the limit; right of 1 is better than it, the red line is the target";
  Svg svg;
  svg.begin(kLeft + kBars + 80, bottom + 16, kTitle, kStyle);
  svg.text(16, 24, "title", "start", kTitle);
  for (int power = axis.low(); power <= axis.high(); ++power) {
    const double x = axis.x_of(std::exp2(power));
    svg.line(power == 0 ? "one" : "grid", x, kTop - 4, x, bottom);
    svg.text(x, kTop - 8, "tick", "middle",
             power < 0 ? str_cat("1/", 1 << -power) : std::to_string(1 << power));
  }
  double y = kTop;
  for (const BenchRow& row : shown) {
    const double from = std::min(axis.x_of(1), axis.x_of(*row.ratio));
    const double to = std::max(axis.x_of(1), axis.x_of(*row.ratio));
    svg.text(kLeft - 8, y + 14, "name", "end", row.name);
    svg.path("bar", str_cat("M", number(from), " ", number(y + 3), "h", number(to - from), "v",
                            number(kRow - 8), "H", number(from), "z"));
    svg.text(to + 6, y + 14, "value", "start", significant(row.ratio));
    if (row.target) {
      const double x = axis.x_of(*row.target);
      svg.line("target", x, y, x, y + kRow - 2);
    }
    y += kRow;
  }
  return svg.end();
}

std::string with_benchmarks(const std::string& page, const std::string& text,
                            const std::string& where) {
  const size_t begin = page.find(kBegin);
  const size_t end = begin == std::string::npos ? begin : page.find(kEnd, begin);
  if (end == std::string::npos) {
    throw_error(ErrorCode::kInput, {.what = "a page has no place for benchmarks",
                                    .where = where,
                                    .expected = str_cat(trim(kBegin), " and ", kEnd),
                                    .got = "",
                                    .fix = "put both lines where the table should be"});
  }
  return page.substr(0, begin) + kBegin + text + page.substr(end);
}

}  // namespace fleet::tools

#include "tools/bench_document.h"

#include <algorithm>
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
  return str_cat(name_of(row.verdict()), why.empty() ? "" : ": ", cell(why));
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
  return std::to_string(static_cast<int>(value + 0.5));
}

constexpr const char* kStyle =
    "<style>text{font:13px sans-serif;fill:#222}.page{fill:#fff}.bar{fill:#4878cf}"
    ".target{stroke:#d65f5f;stroke-width:2}@media(prefers-color-scheme:dark){text{fill:#ddd}"
    ".page{fill:#181818}}</style>";

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
  std::string text = machines_and_days(rows) +
                     " A ratio above 1 means that Fleet is better.\n\n"
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
  constexpr double kLeft = 230;
  constexpr double kBars = 440;
  constexpr double kRow = 24;
  constexpr double kTop = 46;
  std::vector<BenchRow> shown;
  for (const BenchRow& row : rows) {
    if (proves_something(row)) shown.push_back(row);
  }
  std::stable_sort(shown.begin(), shown.end(),
                   [](const BenchRow& a, const BenchRow& b) { return *a.ratio > *b.ratio; });
  double most = 1;
  for (const BenchRow& row : shown) most = std::max({most, *row.ratio, row.target.value_or(0)});
  Svg svg;
  svg.begin(kLeft + kBars + 80, kTop + kRow * static_cast<double>(shown.size()) + 16,
            "Ratio to the peer or the limit; more is better, the line is the target", kStyle);
  svg.text(16, 24, "title", "start",
           "Ratio to the peer or the limit; more is better, the line is the target");
  double y = kTop;
  for (const BenchRow& row : shown) {
    const double width = kBars * *row.ratio / most;
    svg.text(kLeft - 8, y + 14, "name", "end", row.name);
    svg.path("bar", str_cat("M", number(kLeft), " ", number(y + 3), "h", number(width), "v",
                            number(kRow - 8), "H", number(kLeft), "z"));
    svg.text(kLeft + width + 6, y + 14, "value", "start", significant(row.ratio));
    if (row.target) {
      const double x = kLeft + kBars * *row.target / most;
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

// What pages show of benchmark rows: a table, a chart, and the text between two markers.
#pragma once

#include <span>
#include <string>

#include "tools/bench_rows.h"

namespace fleet::tools {

// A Markdown table of all rows, below a line that says on which machines and days they were
// measured; rows that prove nothing say why.
std::string bench_markdown(std::span<const BenchRow> rows);

// The same of the rows that are held against other systems and prove something, without targets.
std::string bench_brief_markdown(std::span<const BenchRow> rows);

// Bars of the ratios of rows that have one and are valid, the largest first, on an axis of powers
// of two, with a tick at each target: an SVG file that stands alone, readable on light and dark.
std::string bench_chart(std::span<const BenchRow> rows);

// `page` with `text` between the lines <!-- benchmarks:begin --> and <!-- benchmarks:end -->.
// Throws ResourceError, naming `where`, when the page lacks them.
std::string with_benchmarks(const std::string& page, const std::string& text,
                            const std::string& where);

}  // namespace fleet::tools

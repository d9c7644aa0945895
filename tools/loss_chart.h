// The loss curves of several runs in one chart, as text and as SVG.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/axis.h"
#include "tools/run_metrics.h"

namespace fleet::tools {

// A chart's content, ready to be drawn. At most `most_points` points a curve: longer ones are
// thinned to means, and steps_per_point says so.
struct LossChart {
  std::string title;
  std::vector<RunMetrics> runs;
  std::vector<std::vector<LossPoint>> curves;  // one a run
  std::size_t steps_per_point = 1;
  Axis steps;
  Axis loss;
};
LossChart make_loss_chart(std::string title, std::span<const RunMetrics> runs,
                          std::size_t most_points);

struct TextStyle {
  int columns = 80;     // of the whole plot, labels included
  int rows = 16;        // of the plot's area
  bool unicode = true;  // box-drawing characters
  bool colour = false;  // ANSI colours
};
// Where curves share a cell their marks take turns from column to column, so that coinciding
// curves show all their marks.
std::string draw_text(const LossChart& chart, const TextStyle& style);

// A file that stands alone; the reader's light or dark scheme decides its colours. Curves are
// drawn from the widest to the thinnest, so that coinciding ones all stay visible.
std::string draw_svg(const LossChart& chart);

}  // namespace fleet::tools

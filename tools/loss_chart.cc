#include "tools/loss_chart.h"

#include <algorithm>

namespace fleet::tools {

LossChart make_loss_chart(std::string title, std::span<const RunMetrics> runs,
                          std::size_t most_points) {
  LossChart chart;
  chart.title = std::move(title);
  chart.runs.assign(runs.begin(), runs.end());
  std::vector<double> losses;
  double last_step = 1;
  for (const RunMetrics& run : runs) {
    ThinnedCurve thinned = thin(run.loss, most_points);
    chart.steps_per_point = std::max(chart.steps_per_point, thinned.steps_per_point);
    for (const LossPoint& point : thinned.points) losses.push_back(point.loss);
    if (!run.loss.empty()) last_step = std::max(last_step, run.loss.back().step);
    chart.curves.push_back(std::move(thinned.points));
  }
  chart.steps = Axis::linear(0, last_step, 8);
  chart.loss = Axis::for_values(losses, 6);
  return chart;
}

}  // namespace fleet::tools

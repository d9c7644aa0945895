// Any curves in one chart, as an SVG file that stands alone; the reader's light or dark scheme
// decides its colours.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fleet::tools {

struct Curve {
  std::string name;
  // By ascending x. A single point is drawn as a dot.
  std::vector<std::pair<double, double>> points;
};

struct LineChart {
  std::string title;
  std::string x;  // what the axes show, with the unit
  std::string y;
  std::vector<Curve> curves;
};

// The y axis is logarithmic when that shows more (Axis::for_values). Values that are not finite
// are left out.
std::string draw_svg(const LineChart& chart);

}  // namespace fleet::tools

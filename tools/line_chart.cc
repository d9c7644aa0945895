#include "tools/line_chart.h"

#include <array>
#include <cmath>
#include <sstream>

#include "base/display.h"
#include "base/strings.h"
#include "tools/axis.h"
#include "tools/svg.h"

namespace fleet::tools {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 560;
constexpr double kLeft = 84;
constexpr double kRight = 700;
constexpr double kTop = 84;
constexpr double kBottom = 492;
constexpr int kTicks = 6;
constexpr std::size_t kColours = 8;

constexpr const char* kStyle = R"(<style>
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.page { fill: #ffffff; } .ink { fill: #1c2430; } .soft { fill: #5b6675; }
.grid { stroke: #e6eaf0; stroke-width: 1; } .axis { stroke: #97a1af; stroke-width: 1; }
.title { font-size: 22px; font-weight: 650; } .note { font-size: 14px; } .tick { font-size: 13px; }
.curve { fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round; }
.c0 { stroke: #1971c2; } .c1 { stroke: #e8590c; } .c2 { stroke: #2f9e44; } .c3 { stroke: #9c36b5; }
.c4 { stroke: #e03131; } .c5 { stroke: #0c8599; } .c6 { stroke: #846358; } .c7 { stroke: #5b6675; }
@media (prefers-color-scheme: dark) {
.page { fill: #10151d; } .ink { fill: #e8edf4; } .soft { fill: #9aa7b8; }
.grid { stroke: #222b38; } .axis { stroke: #556275; }
.c0 { stroke: #74c0fc; } .c1 { stroke: #ffa94d; } .c2 { stroke: #8ce99a; } .c3 { stroke: #e599f7; }
.c4 { stroke: #ff8787; } .c5 { stroke: #66d9e8; } .c6 { stroke: #d0bfae; } .c7 { stroke: #ced4da; }
}
</style>
)";

bool finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

std::vector<double> values_of(const LineChart& chart, bool of_x) {
  std::vector<double> values;
  for (const Curve& curve : chart.curves) {
    for (const auto& point : curve.points) {
      if (finite(point)) values.push_back(of_x ? point.first : point.second);
    }
  }
  if (values.empty()) values = {0, 1};
  return values;
}

class Drawing {
 public:
  explicit Drawing(const LineChart& chart)
      : chart_(chart),
        x_(Axis::for_values(values_of(chart, true), kTicks)),
        y_(Axis::for_values(values_of(chart, false), kTicks)) {}

  std::string draw() {
    svg_.begin(kWidth, kHeight, chart_.title, kStyle);
    svg_.text(kLeft - 52, 40, "ink title", "start", chart_.title);
    draw_axes();
    for (std::size_t i = 0; i < chart_.curves.size(); ++i) {
      draw_curve(chart_.curves[i], i % kColours);
      draw_name(chart_.curves[i].name, i);
    }
    return svg_.end();
  }

 private:
  double x(double value) const { return kLeft + x_.position(value) * (kRight - kLeft); }
  double y(double value) const { return kBottom - y_.position(value) * (kBottom - kTop); }

  void draw_axes() {
    double last = kBottom + 100;
    for (const double tick : y_.ticks()) {
      if (last - y(tick) < 18) continue;
      last = y(tick);
      svg_.line("grid", kLeft, last, kRight, last);
      svg_.text(kLeft - 10, last + 4.5, "soft tick", "end", tick_label(tick));
    }
    svg_.line("axis", kLeft, kBottom, kRight, kBottom);
    double right = -100;
    for (const double tick : x_.ticks()) {
      if (x(tick) - right < 48) continue;
      right = x(tick);
      svg_.line("axis", right, kBottom, right, kBottom + 5);
      svg_.text(right, kBottom + 22, "soft tick", "middle", tick_label(tick));
    }
    const double middle = (kTop + kBottom) / 2;
    svg_.text(kLeft - 52, middle, "soft note", "middle", scaled(chart_.y, y_),
              str_cat(" transform=\"rotate(-90 ", kLeft - 52, " ", middle, ")\""));
    svg_.text((kLeft + kRight) / 2, kBottom + 48, "soft note", "middle", scaled(chart_.x, x_));
  }

  static std::string scaled(const std::string& name, const Axis& axis) {
    return axis.is_logarithmic() ? name + " (log scale)" : name;
  }

  void draw_curve(const Curve& curve, std::size_t colour) {
    std::string path;
    std::size_t points = 0;
    for (const auto& point : curve.points) {
      if (!finite(point)) continue;
      path += str_cat(points++ == 0 ? "M" : "L", fixed(x(point.first), 1), " ",
                      fixed(y(point.second), 1));
    }
    if (points == 1) path += "h0";
    svg_.path(str_cat("curve c", colour, points == 1 ? "\" stroke-width=\"9" : ""), path);
  }

  void draw_name(const std::string& name, std::size_t index) {
    const double top = kTop + 8 + 24 * static_cast<double>(index);
    svg_.path(str_cat("curve c", index % kColours),
              str_cat("M", kRight + 24, " ", fixed(top, 1), "h26"));
    svg_.text(kRight + 60, top + 4.5, "ink note", "start", name);
  }

  const LineChart& chart_;
  Axis x_;
  Axis y_;
  Svg svg_;
};

}  // namespace

std::string draw_svg(const LineChart& chart) {
  return Drawing(chart).draw();
}

}  // namespace fleet::tools

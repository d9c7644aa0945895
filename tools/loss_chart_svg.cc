#include <algorithm>

#include "base/display.h"
#include "base/strings.h"
#include "tools/loss_chart.h"
#include "tools/svg.h"

namespace fleet::tools {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 560;
constexpr double kLeft = 84;
constexpr double kRight = 928;
constexpr double kTop = 156;
constexpr double kBottom = 492;
constexpr std::size_t kStyles = 3;

// Plain rules, overridden for dark readers: viewers without media queries show the light chart.
constexpr const char* kStyle = R"(<style>
text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.page { fill: #ffffff; } .ink { fill: #1c2430; } .soft { fill: #5b6675; }
.grid { stroke: #e6eaf0; stroke-width: 1; } .axis { stroke: #97a1af; stroke-width: 1; }
.title { font-size: 22px; font-weight: 650; } .note { font-size: 14px; } .tick { font-size: 13px; }
.curve { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.c0 { stroke: #8dbdf8; stroke-width: 9; }
.c1 { stroke: #e8590c; stroke-width: 4; }
.c2 { stroke: #14213d; stroke-width: 1.6; stroke-dasharray: 7 6; }
@media (prefers-color-scheme: dark) {
.page { fill: #10151d; } .ink { fill: #e8edf4; } .soft { fill: #9aa7b8; }
.grid { stroke: #222b38; } .axis { stroke: #556275; }
.c0 { stroke: #2c63b8; } .c1 { stroke: #ff922b; } .c2 { stroke: #f8fafc; }
}
</style>
)";

class Drawing {
 public:
  explicit Drawing(const LossChart& chart) : chart_(chart) {}

  std::string draw() {
    svg_.begin(kWidth, kHeight, chart_.title, kStyle);
    svg_.text(kLeft - 52, 40, "ink title", "start", chart_.title);
    svg_.text(kLeft - 52, 64, "soft note", "start", subtitle());
    draw_legend();
    draw_loss_axis();
    draw_step_axis();
    for (std::size_t i = 0; i < chart_.curves.size(); ++i) draw_curve(i);
    return svg_.end();
  }

 private:
  double x(double step) const { return kLeft + chart_.steps.position(step) * (kRight - kLeft); }
  double y(double loss) const { return kBottom - chart_.loss.position(loss) * (kBottom - kTop); }

  std::string subtitle() const {
    std::string words;
    if (const auto difference = largest_difference(chart_.runs)) {
      words = str_cat("Largest difference between the curves at any step: ",
                      shortest(difference->value));
    }
    if (chart_.steps_per_point > 1) {
      words += str_cat(words.empty() ? "E" : ". E", "ach point is the mean of ",
                       chart_.steps_per_point, " steps");
    }
    return words;
  }

  void draw_legend() {
    const double width = (kRight - kLeft + 52) / static_cast<double>(kStyles);
    for (std::size_t i = 0; i < chart_.runs.size(); ++i) {
      const RunMetrics& run = chart_.runs[i];
      const double left = kLeft - 52 + width * static_cast<double>(i % kStyles);
      const std::size_t line = i / kStyles;
      const double top = 96 - 40 * static_cast<double>(line);
      svg_.path(str_cat("curve c", i % kStyles),
                str_cat("M", fixed(left + 4, 1), " ", top - 4, "h34"));
      svg_.text(left + 50, top, "ink note", "start",
                str_cat(mode_label(run), ", ", run.processes,
                        run.processes == 1 ? " process" : " processes"));
      svg_.text(left + 50, top + 18, "soft tick", "start",
                str_cat(fixed(run.steps_per_s, 0), " steps/s", score_of(run)));
      if (shares_cores(run)) {
        svg_.text(left + 50, top + 34, "soft tick", "start",
                  str_cat("its ", run.processes, " processes take turns on ", run.cores,
                          run.cores == 1 ? " core" : " cores"));
      }
    }
  }

  void draw_loss_axis() {
    double last = kBottom + 100;
    for (double tick : chart_.loss.ticks()) {
      if (last - y(tick) < 18) continue;
      last = y(tick);
      svg_.line("grid", kLeft, last, kRight, last);
      svg_.text(kLeft - 10, last + 4.5, "soft tick", "end", tick_label(tick));
    }
    const double middle = (kTop + kBottom) / 2;
    svg_.text(kLeft - 52, middle, "soft note", "middle",
              str_cat("training loss, mean of the step's rows (nats",
                      chart_.loss.is_logarithmic() ? ", log scale)" : ")"),
              str_cat(" transform=\"rotate(-90 ", kLeft - 52, " ", middle, ")\""));
  }

  void draw_step_axis() {
    svg_.line("axis", kLeft, kBottom, kRight, kBottom);
    for (double tick : chart_.steps.ticks()) {
      svg_.line("axis", x(tick), kBottom, x(tick), kBottom + 5);
      svg_.text(x(tick), kBottom + 22, "soft tick", "middle", tick_label(tick));
    }
    svg_.text((kLeft + kRight) / 2, kBottom + 48, "soft note", "middle", "step");
  }

  void draw_curve(std::size_t index) {
    const auto& points = chart_.curves[index];
    if (points.empty()) return;
    std::string path;
    for (std::size_t i = 0; i < points.size(); ++i) {
      path += str_cat(i == 0 ? "M" : "L", fixed(x(points[i].step), 1), " ",
                      fixed(y(points[i].loss), 1));
    }
    svg_.path(str_cat("curve c", index % kStyles), path);
  }

  const LossChart& chart_;
  Svg svg_;
};

}  // namespace

std::string draw_svg(const LossChart& chart) {
  return Drawing(chart).draw();
}

}  // namespace fleet::tools

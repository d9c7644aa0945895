#include "benchmarks/timeline.h"

#include <algorithm>
#include <fstream>
#include <functional>

#include "base/strings.h"

namespace fleet::benchmarks {
namespace {

constexpr double kWidth = 960;
constexpr double kLeft = 110;
constexpr double kRowHeight = 90;
constexpr double kTop = 60;

struct Curve {
  const char* label;
  const char* color;
  std::function<double(const TrafficSample&, const TrafficSample&)> share;  // 0..1
};

class Picture {
 public:
  Picture(const Timeline& timeline, double begin, double end)
      : timeline_(timeline), begin_(begin), end_(end) {}

  std::string draw(const std::vector<Curve>& curves) {
    const double height = kTop + kRowHeight * static_cast<double>(curves.size()) + 50;
    out_ = str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", height,
                   "\" font-family=\"sans-serif\" font-size=\"13\">\n<style>text{fill:#222}"
                   ".axis{stroke:#888}.bg{fill:#fff}@media(prefers-color-scheme:dark)"
                   "{text{fill:#ddd}.bg{fill:#181818}}</style>\n<rect class=\"bg\" width=\"100%\" "
                   "height=\"100%\"/>\n");
    text(kLeft, 24, timeline_.title, 16);
    steps(height - 50);
    for (size_t i = 0; i < curves.size(); ++i) {
      curve(curves[i], kTop + kRowHeight * static_cast<double>(i));
    }
    axis(height - 44);
    return out_ + "</svg>\n";
  }

 private:
  double x_of(double at) const {
    return kLeft + (kWidth - kLeft - 20) * (at - begin_) / (end_ - begin_);
  }
  void text(double x, double y, const std::string& words, int size = 13) {
    out_ +=
        str_cat("<text x=\"", x, "\" y=\"", y, "\" font-size=\"", size, "\">", words, "</text>\n");
  }
  void line(double x0, double y0, double x1, double y1) {
    out_ += str_cat("<line class=\"axis\" x1=\"", x0, "\" y1=\"", y0, "\" x2=\"", x1, "\" y2=\"",
                    y1, "\" stroke-dasharray=\"3 3\"/>\n");
  }
  void steps(double bottom) {
    for (size_t i = 0; i + 1 < timeline_.steps.size(); i += 2) {
      if (timeline_.steps[i] < begin_ || timeline_.steps[i] > end_) continue;
      line(x_of(timeline_.steps[i]), kTop - 14, x_of(timeline_.steps[i]), bottom);
      text(x_of(timeline_.steps[i]) + 3, kTop - 4, str_cat("step ", i / 2));
    }
  }
  void curve(const Curve& curve, double top) {
    const double base = top + kRowHeight - 16;
    const double full = kRowHeight - 30;
    text(8, base - full / 2, curve.label);
    std::string points = str_cat(x_of(begin_), ",", base);
    for (size_t i = 1; i < timeline_.samples.size(); ++i) {
      const TrafficSample& before = timeline_.samples[i - 1];
      const TrafficSample& now = timeline_.samples[i];
      if (before.at < begin_ || now.at > end_) continue;
      const double share = std::clamp(curve.share(before, now), 0.0, 1.1);
      points += str_cat(" ", x_of(before.at), ",", base - full * share, " ", x_of(now.at), ",",
                        base - full * share);
    }
    points += str_cat(" ", x_of(end_), ",", base);
    out_ += str_cat("<polygon points=\"", points, "\" fill=\"", curve.color,
                    "\" fill-opacity=\"0.65\"/>\n");
    out_ += str_cat("<line class=\"axis\" x1=\"", kLeft, "\" y1=\"", base, "\" x2=\"", kWidth - 20,
                    "\" y2=\"", base, "\"/>\n");
  }
  void axis(double y) {
    constexpr int kTicks = 8;
    for (int i = 0; i <= kTicks; ++i) {
      const double at = begin_ + (end_ - begin_) * i / kTicks;
      text(x_of(at) - 10, y + 18, str_cat(static_cast<int>(1e3 * (at - begin_))));
    }
    text(kWidth / 2, y + 36, "milliseconds");
  }

  const Timeline& timeline_;
  double begin_;
  double end_;
  std::string out_;
};

}  // namespace

bool write_timeline(const Timeline& timeline, int shown, const std::string& path) {
  const size_t steps = timeline.steps.size() / 2;
  const size_t first = steps > static_cast<size_t>(shown) ? steps - static_cast<size_t>(shown) : 0;
  if (steps == 0) return false;
  const double full = timeline.link_mbit * 1e6 / 8;
  const std::vector<Curve> curves = {
      {"worker's CPU", "#4878cf",
       [](const TrafficSample& a, const TrafficSample& b) {
         return 1e-9 * static_cast<double>(b.cpu_ns - a.cpu_ns) / (b.at - a.at);
       }},
      {"to servers", "#d65f5f",
       [full](const TrafficSample& a, const TrafficSample& b) {
         return static_cast<double>(b.sent - a.sent) / (b.at - a.at) / full;
       }},
      {"from servers", "#6acc65",
       [full](const TrafficSample& a, const TrafficSample& b) {
         return static_cast<double>(b.received - a.received) / (b.at - a.at) / full;
       }},
  };
  std::ofstream file(path);
  file << Picture(timeline, timeline.steps[2 * first], timeline.steps.back()).draw(curves);
  return static_cast<bool>(file.flush());
}

}  // namespace fleet::benchmarks

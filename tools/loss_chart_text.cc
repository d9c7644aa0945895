#include <algorithm>
#include <cmath>
#include <map>

#include "base/strings.h"
#include "tools/loss_chart.h"

namespace fleet::tools {
namespace {

constexpr int kLabelColumns = 8;
constexpr const char* kColourOff = "\033[0m";

struct Glyphs {
  const char* marks[3];
  const char* side;
  const char* tick;
  const char* corner;
  const char* floor;
  const char* floor_tick;
};
constexpr Glyphs kUnicode{{"•", "×", "+"}, "│", "┤", "└", "─", "┴"};
constexpr Glyphs kAscii{{"o", "x", "+"}, "|", "+", "+", "-", "+"};
constexpr const char* kColours[3] = {"\033[34m", "\033[33m", "\033[36m"};

class TextCanvas {
 public:
  TextCanvas(const LossChart& chart, const TextStyle& style)
      : chart_(chart),
        style_(style),
        glyphs_(style.unicode ? kUnicode : kAscii),
        width_(std::max(16, style.columns - kLabelColumns - 2)),
        height_(std::max(4, style.rows)) {}

  std::string draw() {
    place_curves();
    std::string out = "  " + chart_.title + "\n  " + y_title() + "\n";
    for (int row = height_ - 1; row >= 0; --row) out += draw_row(row);
    return out + draw_floor() + draw_step_labels() + draw_legend();
  }

 private:
  std::string mark(std::size_t curve) const {
    const std::string glyph = glyphs_.marks[curve % 3];
    return style_.colour ? kColours[curve % 3] + glyph + kColourOff : glyph;
  }

  std::string y_title() const {
    return str_cat("training loss", chart_.loss.is_logarithmic() ? " (log scale)" : "",
                   chart_.steps_per_point > 1
                       ? str_cat(", each point the mean of ", chart_.steps_per_point, " steps")
                       : "");
  }

  int column(double step) const { return cell(chart_.steps.position(step), width_); }
  int row(double loss) const { return cell(chart_.loss.position(loss), height_); }
  static int cell(double position, int cells) {
    return std::clamp(static_cast<int>(std::lround(position * (cells - 1))), 0, cells - 1);
  }

  void place_curves() {
    for (std::size_t curve = 0; curve < chart_.curves.size(); ++curve) {
      for (const LossPoint& point : chart_.curves[curve]) {
        auto& here = cells_[{row(point.loss), column(point.step)}];
        if (here.empty() || here.back() != curve) here.push_back(curve);
      }
    }
  }

  std::string draw_row(int row) const {
    std::string label;
    for (double tick : chart_.loss.ticks()) {
      if (this->row(tick) == row) label = tick_label(tick);
    }
    std::string line =
        pad(label, kLabelColumns) + " " + (label.empty() ? glyphs_.side : glyphs_.tick);
    for (int column = 0; column < width_; ++column) {
      const auto found = cells_.find({row, column});
      if (found == cells_.end()) {
        line += " ";
      } else {
        line += mark(found->second[static_cast<std::size_t>(column) % found->second.size()]);
      }
    }
    while (line.ends_with(' ')) line.pop_back();
    return line + "\n";
  }

  std::string draw_floor() const {
    std::string line(kLabelColumns + 1, ' ');
    line += glyphs_.corner;
    for (int column = 0; column < width_; ++column) {
      const bool tick = std::ranges::any_of(
          chart_.steps.ticks(), [&](double step) { return this->column(step) == column; });
      line += tick && column > 0 ? glyphs_.floor_tick : glyphs_.floor;
    }
    return line + "\n";
  }

  std::string draw_step_labels() const {
    std::string line;
    for (double tick : chart_.steps.ticks()) {
      const std::string label = tick_label(tick);
      const int middle = kLabelColumns + 2 + column(tick);
      const auto begin =
          static_cast<std::size_t>(std::max(0, middle - static_cast<int>(label.size()) / 2));
      if (begin < line.size() + (line.empty() ? 0 : 1)) continue;
      line.resize(begin, ' ');
      line += label;
    }
    return line + "  step\n";
  }

  std::string draw_legend() const {
    std::string line(kLabelColumns + 2, ' ');
    for (std::size_t curve = 0; curve < chart_.runs.size(); ++curve) {
      line += str_cat(curve == 0 ? "" : "   ", mark(curve), " ", mode_label(chart_.runs[curve]));
    }
    return line + "\n";
  }

  static std::string pad(const std::string& text, std::size_t width) {
    return std::string(width - std::min(width, text.size()), ' ') + text;
  }

  const LossChart& chart_;
  const TextStyle& style_;
  const Glyphs& glyphs_;
  const int width_;
  const int height_;
  std::map<std::pair<int, int>, std::vector<std::size_t>> cells_;
};

}  // namespace

std::string draw_text(const LossChart& chart, const TextStyle& style) {
  return TextCanvas(chart, style).draw();
}

}  // namespace fleet::tools

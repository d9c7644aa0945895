#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/display.h"
#include "base/strings.h"
#include "tools/explain/page_parts.h"

namespace fleet::explain {
namespace {

constexpr double kWidth = 340;  // so that letters are large enough on a phone
constexpr double kBoxWidth = 116;
constexpr double kBoxHeight = 66;
constexpr double kGap = 16;
constexpr size_t kMostBoxes = 4;
constexpr double kWidest = 7;

struct Boxes {
  size_t shown = 0;
  size_t more = 0;

  explicit Boxes(size_t count)
      : shown(count <= kMostBoxes ? count : kMostBoxes - 1), more(count - shown) {}
  size_t places() const { return shown + (more > 0 ? 1 : 0); }
  double height() const { return static_cast<double>(places()) * (kBoxHeight + kGap) - kGap; }
  // The top of a box in a column of this height.
  double top(size_t i, double column) const {
    return (column - height()) / 2 + static_cast<double>(i) * (kBoxHeight + kGap);
  }
};

std::string text(double x, double y, const std::string& classes, const std::string& words) {
  return str_cat("<text class=\"", classes, "\" x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1),
                 "\" text-anchor=\"middle\">", escape_markup(words), "</text>\n");
}

using Words = std::array<std::string, 2>;

std::string lines(double x, double y, const Words& words) {
  return text(x, y, "small", words[0]) + text(x, y + 17, "small", words[1]);
}

std::string box(double x, double y, const std::string& title, const Words& words) {
  const double middle = x + kBoxWidth / 2;
  return str_cat("<rect x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" width=\"", kBoxWidth,
                 "\" height=\"", kBoxHeight, "\" rx=\"9\"/>\n", text(middle, y + 20, "", title),
                 lines(middle, y + 38, words));
}

std::string more_text(double x, double y, size_t more) {
  return text(x + kBoxWidth / 2, y + kBoxHeight / 2 + 4, "small", str_cat("and ", more, " more"));
}

std::string link(double y1, double y2, double width) {
  const double x1 = kBoxWidth + 1;
  const double x2 = kWidth - kBoxWidth - 1;
  const double middle = (x1 + x2) / 2;
  return str_cat("<path class=\"link\" stroke-width=\"", fixed(width, 1), "\" d=\"M", fixed(x1, 1),
                 " ", fixed(y1, 1), "C", fixed(middle, 1), " ", fixed(y1, 1), " ", fixed(middle, 1),
                 " ", fixed(y2, 1), " ", fixed(x2, 1), " ", fixed(y2, 1), "\"/>\n");
}

std::string opening(double height, const std::string& title) {
  return str_cat("<svg class=\"picture\" viewBox=\"-1 -1 ", kWidth + 2, " ", fixed(height + 2, 0),
                 "\" role=\"img\"><title>", escape_markup(title), "</title>\n");
}

Words up_and_down(double up, double down) {
  return {str_cat("↑ ", bytes_text(up)), str_cat("↓ ", bytes_text(down))};
}

std::string draw_servers(const Explanation& explanation) {
  const Boxes trainers(static_cast<size_t>(explanation.trainers));
  const Boxes servers(explanation.servers.size());
  const double height = std::max(trainers.height(), servers.height());
  std::string svg = opening(height, "trainers, servers, and what travels between them in a step");
  double most = 1;
  for (const ServerLoad& server : explanation.servers) most = std::max(most, server.bytes_in);
  for (size_t s = 0; s < servers.shown; ++s) {
    const double load = explanation.servers[s].bytes_in / most;
    if (load == 0) continue;
    for (size_t t = 0; t < trainers.shown; ++t) {
      svg += link(trainers.top(t, height) + kBoxHeight / 2, servers.top(s, height) + kBoxHeight / 2,
                  std::max(1.0, kWidest * load));
    }
  }
  const Traffic& traffic = explanation.traffic;
  for (size_t t = 0; t < trainers.shown; ++t) {
    svg += box(0, trainers.top(t, height), str_cat("trainer ", t),
               up_and_down(traffic.trainer_out, traffic.trainer_in));
  }
  for (size_t s = 0; s < servers.shown; ++s) {
    const ServerLoad& server = explanation.servers[s];
    svg += box(kWidth - kBoxWidth, servers.top(s, height), str_cat("server ", s),
               {bytes_text(static_cast<double>(server.parameter_bytes)),
                str_cat(fixed(100 * server.share, 0), " %")});
  }
  if (trainers.more > 0) svg += more_text(0, trainers.top(trainers.shown, height), trainers.more);
  if (servers.more > 0) {
    svg += more_text(kWidth - kBoxWidth, servers.top(servers.shown, height), servers.more);
  }
  return svg + "</svg>\n";
}

std::string draw_ring(const Explanation& explanation) {
  constexpr double kHeight = 250;
  constexpr double kRadius = 92;
  constexpr double kDot = 24;
  constexpr int kMostRanks = 12;
  const int ranks = std::min(explanation.trainers, kMostRanks);
  const double middle = kWidth / 2;
  std::string svg = opening(kHeight, "ranks, and what each sends in a step");
  svg += str_cat("<circle class=\"link\" stroke-width=\"4\" cx=\"", middle, "\" cy=\"", kHeight / 2,
                 "\" r=\"", kRadius, "\"/>\n");
  for (int i = 0; i < ranks; ++i) {
    const double angle = 2 * std::numbers::pi * i / ranks - std::numbers::pi / 2;
    const double x = middle + kRadius * std::cos(angle);
    const double y = kHeight / 2 + kRadius * std::sin(angle);
    const bool rest = i == kMostRanks - 1 && explanation.trainers > kMostRanks;
    svg += str_cat("<rect x=\"", fixed(x - kDot, 1), "\" y=\"", fixed(y - kDot, 1), "\" width=\"",
                   2 * kDot, "\" height=\"", 2 * kDot, "\" rx=\"", kDot, "\"/>\n",
                   text(x, y + 5, "", rest ? std::string("…") : str_cat(i)));
  }
  const Traffic& traffic = explanation.traffic;
  svg += text(middle, kHeight / 2 - 10, "", str_cat(explanation.trainers, " ranks"));
  svg += lines(middle, kHeight / 2 + 10, up_and_down(traffic.trainer_out, traffic.trainer_in));
  return svg + "</svg>\n";
}

}  // namespace

std::string page_picture(const Explanation& explanation) {
  return explanation.servers.empty() ? draw_ring(explanation) : draw_servers(explanation);
}

}  // namespace fleet::explain

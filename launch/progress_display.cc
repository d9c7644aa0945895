#include "launch/progress_display.h"

namespace fleet::launch {
namespace {

constexpr Duration kRedraw = std::chrono::milliseconds(250);
constexpr Duration kReport = std::chrono::seconds(5);
constexpr Duration kJsonInterval = std::chrono::seconds(1);

}  // namespace

ProgressDisplay::ProgressDisplay(const ProgressBoard& board, const ProgressForms& forms,
                                 EventLoop& loop, Console& console)
    : board_(board), forms_(forms), loop_(loop), console_(console) {}

ProgressDisplay::~ProgressDisplay() {
  if (draw_timer_) loop_.cancel(*draw_timer_);
  if (json_timer_) loop_.cancel(*json_timer_);
}

void ProgressDisplay::start() {
  if (forms_.progress) draw();
  if (forms_.json) print_json();
}

void ProgressDisplay::draw() {
  console_.show_progress(board_.line(loop_.now()));
  draw_timer_ = loop_.call_after(console_.rewrites() ? kRedraw : kReport, [this] { draw(); });
}

void ProgressDisplay::print_json() {
  if (!console_.behind()) console_.print(board_.json(loop_.now(), false) + "\n");
  json_timer_ = loop_.call_after(kJsonInterval, [this] { print_json(); });
}

void ProgressDisplay::show_end() {
  if (forms_.json) console_.print(board_.json(loop_.now(), true) + "\n");
  const std::string summary = forms_.progress ? board_.summary(loop_.now()) : "";
  if (!summary.empty()) console_.say("after " + board_.line(loop_.now()) + "\n" + summary);
}

}  // namespace fleet::launch

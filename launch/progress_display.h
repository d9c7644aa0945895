// Shows a board while its job runs, and at its end.
#pragma once

#include <optional>

#include "launch/console.h"
#include "launch/process/event_loop.h"
#include "launch/progress_board.h"

namespace fleet::launch {

struct ProgressForms {
  bool progress = false;  // a line while the job runs, a table at its end
  bool json = false;      // the same on stdout, as a line of JSON a second
};

class ProgressDisplay {
 public:
  // All of them outlive the display, which belongs to the loop's thread.
  ProgressDisplay(const ProgressBoard& board, const ProgressForms& forms, EventLoop& loop,
                  Console& console);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void start();
  void show_end();

 private:
  void draw();
  void print_json();

  const ProgressBoard& board_;
  ProgressForms forms_;
  EventLoop& loop_;
  Console& console_;
  std::optional<EventLoop::Timer> draw_timer_;
  std::optional<EventLoop::Timer> json_timer_;
};

}  // namespace fleet::launch

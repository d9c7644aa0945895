// What a launcher says: messages and a progress line on stderr, the members' output on stdout.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "launch/process/event_loop.h"

namespace fleet::launch {

// Writes whole lines; a progress line on a terminal is wiped before and stays last. Never waits for
// who reads: what finds no room is kept, and written when there is some. Single thread.
class Console {
 public:
  explicit Console(std::string program);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // The loop that tells when there is room again, until it is null.
  void use(EventLoop* loop);

  // "launch_ps: text" on stderr; further lines of the text follow as they are.
  void say(std::string_view text);
  // The same for a failure: in red on a terminal, unless NO_COLOR is set.
  void complain(std::string_view text);
  // "[worker 1] line" on stdout.
  void tee(std::string_view title, std::string_view line);
  // One rewritten line on a terminal, an ordinary line elsewhere.
  void show_progress(const std::string& line);
  // Lines on stdout.
  void print(std::string_view text);
  // Ends a rewritten line.
  void finish_progress();
  bool rewrites() const { return rewrites_; }
  // Who reads is behind: lines that can wait should.
  bool behind() const { return !kept_.empty(); }
  // Waits until everything kept has been read, or nobody reads any more.
  void finish();

 private:
  struct Text {
    int fd = -1;
    std::string bytes;
  };

  void write(int fd, const std::string& text);
  // Writes what there is room for now, or, if it may wait, all. False when something is left.
  bool write_kept(bool wait);
  void write_when_ready();
  void wipe();

  std::string program_;
  bool rewrites_ = false;
  bool colour_ = false;
  std::string shown_;
  EventLoop* loop_ = nullptr;
  int watched_ = -1;
  std::deque<Text> kept_;
};

std::string seconds_text(Duration duration);  // "12.3 s"
// "1 worker", "2 workers", "2 processes".
std::string counted(int count, std::string_view noun);

}  // namespace fleet::launch

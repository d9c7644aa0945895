// Lines from a pipe or a socket, as they come.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/process/file_descriptor.h"
#include "launch/process/event_loop.h"

namespace fleet::launch {

// For a reader of stdin, which itself stays open.
FileDescriptor duplicate_of_stdin();

// Owns the descriptor. Handlers run on the loop's thread and must not destroy the reader.
class LineReader {
 public:
  using LineHandler = std::function<void(std::string_view)>;
  // `begun` was read already. A longer line than `longest` bytes is left out.
  LineReader(EventLoop& loop, FileDescriptor source, std::string begun, LineHandler handler,
             size_t longest = 4096);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Called once, behind the last line, when the other end is closed.
  void when_ended(EventLoop::Handler handler) { on_end_ = std::move(handler); }
  // Reads what is there now.
  void finish() {
    if (source_) read_some();
  }
  // What came behind the last whole line.
  const std::string& unfinished() const { return partial_; }

 private:
  void read_some();
  void hand_over();

  EventLoop& loop_;
  FileDescriptor source_;
  std::string partial_;
  LineHandler handler_;
  EventLoop::Handler on_end_;
  size_t longest_;
};

}  // namespace fleet::launch

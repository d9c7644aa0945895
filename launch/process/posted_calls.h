// Work for an event loop from other threads.
#pragma once

#include <deque>
#include <mutex>

#include "base/process/file_descriptor.h"
#include "launch/process/event_loop.h"

namespace fleet::launch {

class PostedCalls {
 public:
  // The loop outlives this, and belongs to the constructing thread.
  explicit PostedCalls(EventLoop& loop);
  ~PostedCalls();
  PostedCalls(const PostedCalls&) = delete;
  PostedCalls& operator=(const PostedCalls&) = delete;

  // The loop runs it, in the order in which it was posted. From any thread.
  void post(EventLoop::Handler call);

 private:
  void run_all();

  EventLoop& loop_;
  FileDescriptor event_;
  std::mutex mutex_;
  std::deque<EventLoop::Handler> calls_;  // guarded by mutex_
};

}  // namespace fleet::launch

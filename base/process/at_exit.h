// Work that a process does when it exits, while its objects of static life are still there.
#pragma once

#include <functional>
#include <memory>

namespace fleet {

// Runs `work` once when this process leaves main or calls exit(), unless this object is gone by
// then; not in forked children, and not when a signal or _exit() ends the process. It runs on the
// thread that exits, before the destructors of static objects that were there when this was made,
// and before the exit handlers of libraries that were in use then.
class AtExit {
 public:
  // `work` may not destroy this object, and must not throw.
  explicit AtExit(std::function<void()> work);
  // Waits while `work` runs.
  ~AtExit();
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  struct Cell;
  std::shared_ptr<Cell> cell_;
};

}  // namespace fleet

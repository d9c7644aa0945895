// What the loops of a process wait for, asked from another thread, for people who wonder why a job
// stands still.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fleet {

// Any thread may call everything.
class WaitList {
  struct Entry;
  struct State;

 public:
  // One line for each thing that is waited for.
  using Lines = std::function<std::vector<std::string>()>;

  // Keeps an entry in the list. It is dropped on the loop's thread, or while nobody drives the
  // loop, before what `lines` reads and before the loop.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&&) noexcept = default;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { drop(); }
    void drop();

   private:
    friend class WaitList;
    std::shared_ptr<State> state_;
    std::shared_ptr<Entry> entry_;
  };

  WaitList();

  // `lines` runs on the loop's thread.
  [[nodiscard]] Watch watch(std::string name, Loop& loop, Lines lines);
  // `lines` runs on the thread that asks.
  [[nodiscard]] Watch watch(std::string name, Lines lines);

  // "name: line" of every entry, in the order in which they came; an entry that waits for nothing
  // says so. A loop that does not answer in time is busy, which is said too.
  std::vector<std::string> ask(Duration limit);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace fleet

// Functions that take turns on one thread: each has a stack of its own, and gives the thread back
// where it waits. So code that blocks runs under virtual time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace fleet::testing {

// Belongs to one thread.
class Fiber {
 public:
  // `body` must not throw.
  explicit Fiber(std::function<void()> body);
  // It must be over, or never have begun.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body from where it gave the thread back, until it does so again or is over.
  void resume();
  bool over() const;

  // The one that runs, or null.
  static Fiber* current();
  // Of the one that runs: returns from its resume().
  static void suspend();

 private:
  struct State;
  static void run(unsigned low, unsigned high);
  void switch_to(bool inside);

  std::unique_ptr<State> state_;
};

}  // namespace fleet::testing

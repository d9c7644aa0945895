// Threads that wait for the shards of a step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fleet::fluid {

// Used by one thread, which works too.
class ShardThreads {
 public:
  explicit ShardThreads(int others);
  ~ShardThreads();
  ShardThreads(const ShardThreads&) = delete;
  ShardThreads& operator=(const ShardThreads&) = delete;

  // work(0) on this thread, work(1), work(2) … on the others; returns when all are done. Throws
  // what the first of them threw, in the order of their numbers.
  void run(const std::function<void(int)>& work);

 private:
  void serve(int lane);
  void work_on(int lane);

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* work_ = nullptr;
  uint64_t round_ = 0;
  int busy_ = 0;
  bool stopped_ = false;
  std::vector<std::exception_ptr> errors_;  // by lane
  std::vector<std::thread> threads_;
};

}  // namespace fleet::fluid

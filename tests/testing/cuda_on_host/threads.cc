// Threads of a block as contexts of one thread of the host, which change at barriers. Compiled as
// kernels are, after device_code.h.
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <ucontext.h>
#include <vector>

#include "fluid/kernels/cuda/launch_impl.h"
#include "tests/testing/cuda_on_host/stream.h"

fleet::testing::DeviceIndex threadIdx;
fleet::testing::DeviceIndex blockIdx;
fleet::testing::DeviceIndex blockDim;
fleet::testing::DeviceIndex gridDim;

namespace fleet::testing {
namespace {

constexpr int kThreads = fluid::cuda::kThreads;
constexpr size_t kStack = size_t{64} << 10;

enum class State { kNew, kAtBarrier, kDone };

class Block {
 public:
  // All threads of the block, from barrier to barrier: forwards, backwards, forwards, … so that a
  // missing barrier is seen whichever way values go.
  void run(const std::function<void()>& thread) {
    thread_ = &thread;
    state_.fill(State::kNew);
    for (bool forwards = true;; forwards = !forwards) {
      any_ = next_any_;
      next_any_ = 0;
      for (int i = 0; i < kThreads; ++i) resume(forwards ? i : kThreads - 1 - i);
      const size_t waiting = count(State::kAtBarrier);
      if (waiting == 0) return;
      if (waiting != kThreads)
        fail("threads of a block end, or branch, before a barrier of others");
    }
  }

  void wait() {
    state(current_) = State::kAtBarrier;
    to_scheduler();
  }
  int wait_or(int truth) {
    next_any_ |= truth != 0;
    wait();
    return any_;
  }

 private:
  // A context is made once, and waits for its next thread when one has ended: jumps cost no system
  // call, as changes by ucontext would.
  void resume(int i) {
    if (state(i) == State::kDone) return;
    current_ = i;
    threadIdx.x = static_cast<unsigned>(i);
    if (_setjmp(scheduler_) != 0) return;
    if (stack(i) == nullptr) start(i);
    _longjmp(jump(i), 1);
  }
  [[noreturn]] void start(int i) {
    stack(i) = std::make_unique<char[]>(kStack);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack = {.ss_sp = stack(i).get(), .ss_flags = 0, .ss_size = kStack};
    makecontext(&context, &Block::run_threads, 0);
    setcontext(&context);
    fail("a context could not be entered");
  }
  static void run_threads();
  void run_next() {
    (*thread_)();
    state(current_) = State::kDone;
    to_scheduler();
  }
  void to_scheduler() {
    if (_setjmp(jump(current_)) == 0) _longjmp(scheduler_, 1);
  }
  [[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "kernel on the host: %s\n", what);
    std::abort();
  }
  size_t count(State wanted) const {
    return static_cast<size_t>(std::count(state_.begin(), state_.end(), wanted));
  }
  State& state(int i) { return state_[static_cast<size_t>(i)]; }
  std::unique_ptr<char[]>& stack(int i) { return stacks_[static_cast<size_t>(i)]; }
  jmp_buf& jump(int i) { return jumps_[static_cast<size_t>(i)]; }

  const std::function<void()>* thread_ = nullptr;
  std::array<State, kThreads> state_{};
  std::array<std::unique_ptr<char[]>, kThreads> stacks_;
  std::array<jmp_buf, kThreads> jumps_{};
  jmp_buf scheduler_{};
  int current_ = 0;
  int any_ = 0;       // of the barrier that all threads have reached
  int next_any_ = 0;  // of the one that they go to
};

Block& block() {
  static auto* const kBlock = new Block;
  return *kBlock;
}

void Block::run_threads() {
  for (;;) block().run_next();
}

}  // namespace
}  // namespace fleet::testing

void __syncthreads() {
  fleet::testing::block().wait();
}

int __syncthreads_or(int truth) {
  return fleet::testing::block().wait_or(truth);
}

unsigned __shfl_xor_sync(unsigned, unsigned value, int bits) {
  static unsigned values[fleet::fluid::cuda::kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  const unsigned other = values[threadIdx.x ^ static_cast<unsigned>(bits)];
  __syncthreads();
  return other;
}

namespace fleet::fluid::cuda {

void run_on_host(unsigned blocks, std::function<void()> thread) {
  testing::put_on_stream([blocks, thread = std::move(thread)] {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    gridDim.x = blocks;
    blockDim.x = kThreads;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) testing::block().run(thread);
  });
}

}  // namespace fleet::fluid::cuda

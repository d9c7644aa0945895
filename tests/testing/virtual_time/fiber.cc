#include "tests/testing/virtual_time/fiber.h"

#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace fleet::testing {
namespace {

constexpr size_t kStackBytes = size_t{512} << 10;
constexpr size_t kGuardBytes = size_t{4} << 10;

// Memory whose first page cannot be touched: a stack that is too deep ends the test there.
class Stack {
 public:
  Stack() {
    memory_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED || ::mprotect(memory_, kGuardBytes, PROT_NONE) != 0) {
      throw std::bad_alloc();
    }
  }
  ~Stack() { ::munmap(memory_, kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* begin() const { return memory_; }

 private:
  void* memory_;
};

// Stacks are used again: thousands of jobs have a few each.
std::vector<std::unique_ptr<Stack>>& free_stacks() {
  static thread_local std::vector<std::unique_ptr<Stack>> stacks;
  return stacks;
}

std::unique_ptr<Stack> take_stack() {
  auto& stacks = free_stacks();
  if (stacks.empty()) return std::make_unique<Stack>();
  auto stack = std::move(stacks.back());
  stacks.pop_back();
  return stack;
}

Fiber*& running() {
  static thread_local Fiber* fiber = nullptr;
  return fiber;
}

// What the language keeps of exceptions that are being handled, for each thread: each fiber has its
// own (Itanium C++ ABI, 2.2.2).
struct Handled {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

void exchange_handled(Handled& other) {
  Handled mine;
  void* const of_thread = abi::__cxa_get_globals();
  std::memcpy(&mine, of_thread, sizeof(Handled));
  std::memcpy(of_thread, &other, sizeof(Handled));
  other = mine;
}

}  // namespace

struct Fiber::State {
  std::function<void()> body;
  std::unique_ptr<Stack> stack = take_stack();
  ucontext_t inside = {};
  ucontext_t outside = {};
  Handled handled;          // of the side that does not run
  Fiber* before = nullptr;  // that ran when it was resumed
  const void* stack_before = nullptr;
  size_t stack_before_bytes = 0;
  bool over = false;
};

Fiber::Fiber(std::function<void()> body) : state_(std::make_unique<State>()) {
  state_->body = std::move(body);
  ::getcontext(&state_->inside);
  state_->inside.uc_stack.ss_sp = state_->stack->begin();
  state_->inside.uc_stack.ss_size = kStackBytes;
  state_->inside.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&state_->inside, reinterpret_cast<void (*)()>(&Fiber::run), 2,
                static_cast<unsigned>(self), static_cast<unsigned>(self >> 32));
}

Fiber::~Fiber() {
  free_stacks().push_back(std::move(state_->stack));
}

Fiber* Fiber::current() {
  return running();
}

bool Fiber::over() const {
  return state_->over;
}

void Fiber::run(unsigned low, unsigned high) {
  auto* const self = reinterpret_cast<Fiber*>(uintptr_t{low} | (uintptr_t{high} << 32));
  State& state = *self->state_;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &state.stack_before, &state.stack_before_bytes);
#endif
  state.body();
  state.body = nullptr;
  state.over = true;
  self->switch_to(false);
}

// To the fiber, or from it.
void Fiber::switch_to(bool inside) {
  State& state = *state_;
  exchange_handled(state.handled);
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  if (inside) {
    __sanitizer_start_switch_fiber(&fake, state.stack->begin(), kStackBytes);
  } else {
    __sanitizer_start_switch_fiber(state.over ? nullptr : &fake, state.stack_before,
                                   state.stack_before_bytes);
  }
#endif
  ucontext_t& from = inside ? state.outside : state.inside;
  ::swapcontext(&from, inside ? &state.inside : &state.outside);
#if defined(__SANITIZE_ADDRESS__)
  if (inside) {
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  } else {
    __sanitizer_finish_switch_fiber(fake, &state.stack_before, &state.stack_before_bytes);
  }
#endif
}

void Fiber::resume() {
  if (state_->over) return;
  state_->before = std::exchange(running(), this);
  switch_to(true);
  running() = state_->before;
}

void Fiber::suspend() {
  if (running() == nullptr) {
    throw_error(ErrorCode::kPrecondition, {.what = "nothing but a fiber can wait here",
                                           .where = "Fiber::suspend",
                                           .expected = "a call from inside of a fiber",
                                           .got = "a call from outside",
                                           .fix = {}});
  }
  running()->switch_to(false);
}

}  // namespace fleet::testing

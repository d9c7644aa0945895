#include "strategies/parameter_server/worker/trainer_threads.h"

#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace fleet::strategies {
namespace {

// One thread's values: a copy of everything that the scope holds.
std::unique_ptr<fluid::Scope> copy_of(const fluid::Scope& scope) {
  auto copy = std::make_unique<fluid::Scope>(&scope);
  for (const auto& name : scope.local_names()) {
    const auto* tensor = std::get_if<fluid::Tensor>(scope.find_local(name));
    if (tensor != nullptr && tensor->initialized()) {
      copy->var(name).emplace<fluid::Tensor>(tensor->clone());
    }
  }
  return copy;
}

StrategyRuntime& runtime_of(const fluid::Program& program, StrategyRuntime* given) {
  if (given == nullptr) given = dynamic_cast<StrategyRuntime*>(program.runtime().get());
  if (given != nullptr) return *given;
  throw_no_trainer_threads("no runtime of a strategy");
}

}  // namespace

void run_trainer_threads(
    fluid::Executor& executor, const fluid::Program& program, uint32_t count,
    const std::function<void(uint32_t thread, fluid::Executor& executor)>& body,
    StrategyRuntime* given) {
  if (executor.has_after_run(program)) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "a worker with several trainer threads makes no checkpoints",
                 .where = "run_trainer_threads",
                 .expected = "an executor without fleet::resume",
                 .got = "one that saves behind its steps",
                 .fix = "train with one thread and more workers, or leave out fleet::resume"});
  }
  StrategyRuntime& runtime = runtime_of(program, given);
  std::vector<std::unique_ptr<fluid::Scope>> scopes;
  for (uint32_t i = 0; i < count; ++i) {
    scopes.push_back(copy_of(executor.scope()));
    runtime.enter_thread(i, *scopes.back(), executor.scope());
  }
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&](const std::function<void()>& work) {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      guarded([&] {
        fluid::Executor own = executor.share(*scopes[i]);
        body(i, own);
      });
      guarded([&] { runtime.leave_thread(*scopes[i]); });
    });
  }
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fleet::strategies

// The runtimes of parameter-server jobs in the form that the facade calls: a worker forwards
// everything to what runs its program, a server refuses what only workers do.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "strategies/strategy.h"

namespace fleet::strategies {

// What both have in common: the ops of a program.
template <class Runtime>
class ProcessRuntime : public StrategyRuntime {
 public:
  template <class... Arguments>
  explicit ProcessRuntime(Arguments&&... arguments)
      : runtime_(std::forward<Arguments>(arguments)...) {}

  fluid::ShardRange shards() const override { return runtime_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    runtime_.begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    runtime_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return runtime_.run(call);
  }

 protected:
  Runtime runtime_;
};

template <class Runtime>
class WorkerProcess : public ProcessRuntime<Runtime> {
 public:
  using ProcessRuntime<Runtime>::ProcessRuntime;

  void init_worker() override { this->runtime_.init_worker(); }
  void stop_worker() override { this->runtime_.stop_worker(); }
  void abort_worker(const Status& why, uint64_t step) override { this->runtime_.abort(why, step); }
  void barrier_worker() override { this->runtime_.barrier_worker(); }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return this->runtime_.all_reduce_worker(values);
  }

  const fluid::Program* checkpoint_program() const override {
    return this->runtime_.checkpoint_program();
  }
  bool gather_persistables(fluid::Scope& scope) override {
    return this->runtime_.gather_persistables(scope);
  }
  bool gather(std::span<const std::string> names, fluid::Scope& scope) override {
    return this->runtime_.gather(names, scope);
  }
  void spread_persistables(fluid::Scope& scope) override {
    this->runtime_.spread_persistables(scope);
  }
};

template <class Runtime>
class ServerProcess final : public ProcessRuntime<Runtime> {
 public:
  using ProcessRuntime<Runtime>::ProcessRuntime;

  void init_worker() override { refuse("init_worker"); }
  void stop_worker() override { refuse("stop_worker"); }
  void barrier_worker() override { refuse("barrier_worker"); }
  std::vector<double> all_reduce_worker(std::span<const double>) override {
    refuse("all_reduce_worker");
  }

 private:
  [[noreturn]] static void refuse(const char* call) {
    throw_error(ErrorCode::kPrecondition, {.what = "this process is a server",
                                           .where = call,
                                           .expected = "a worker",
                                           .got = "a server",
                                           .fix = "call run_server() in servers"});
  }
};

}  // namespace fleet::strategies

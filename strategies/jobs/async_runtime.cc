#include "strategies/jobs/async_runtime.h"

#include "base/error.h"
#include "strategies/parameter_server/asynchronous/async_server_runtime.h"
#include "strategies/parameter_server/asynchronous/async_worker_runtime.h"

namespace fleet::strategies {
namespace {

// A worker's place in the job, as the facade wants it.
class AsyncWorkerProcess final : public StrategyRuntime, public ThreadedRuntime {
 public:
  AsyncWorkerProcess(AsyncJob job, fluid::Program origin)
      : ops_(std::move(job.config), std::move(job.options), job.transport, std::move(origin),
             std::move(job.server_names), job.logger) {}

  void init_worker() override { ops_.init_worker(); }
  void stop_worker() override { ops_.stop_worker(); }
  void barrier_worker() override { ops_.barrier_worker(); }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return ops_.all_reduce_worker(values);
  }

  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override {
    ops_.enter_thread(thread, scope, parent);
  }
  void leave_thread(fluid::Scope& scope) override { ops_.leave_thread(scope); }

  fluid::ShardRange shards() const override { return ops_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    ops_.begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return ops_.run(call);
  }
  const fluid::Program* checkpoint_program() const override { return ops_.checkpoint_program(); }
  bool gather_persistables(fluid::Scope& scope) override { return ops_.gather_persistables(scope); }
  void spread_persistables(fluid::Scope& scope) override { ops_.spread_persistables(scope); }

 private:
  AsyncWorkerRuntime ops_;
};

class AsyncServerProcess final : public StrategyRuntime {
 public:
  explicit AsyncServerProcess(AsyncJob job)
      : ops_(std::move(job.config), std::move(job.options), job.transport, job.logger) {}

  void init_worker() override { refuse("init_worker"); }
  void stop_worker() override { refuse("stop_worker"); }
  void barrier_worker() override { refuse("barrier_worker"); }
  std::vector<double> all_reduce_worker(std::span<const double>) override {
    refuse("all_reduce_worker");
  }

  fluid::ShardRange shards() const override { return ops_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    ops_.begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return ops_.run(call);
  }

 private:
  [[noreturn]] static void refuse(const char* call) {
    throw_error(ErrorCode::kPrecondition, {.what = "this process is a server",
                                           .where = call,
                                           .expected = "a worker",
                                           .got = "a server",
                                           .fix = "call run_server() in servers"});
  }

  AsyncServerRuntime ops_;
};

void prepare(AsyncJob& job) {
  validate(job.options);
  for (const auto& [name, value] : async_facts(job.options)) {
    job.config.facts.emplace(name, value);
  }
}

}  // namespace

AsyncOptions configured(AsyncOptions options, const TrainerRuntimeConfig& trainer, int64_t cpu_num,
                        bool merge_by_sum) {
  options.trainer_threads = static_cast<uint32_t>(cpu_num);
  options.thread_pool_size = static_cast<uint32_t>(trainer.communicator_thread_pool_size);
  if (options.staleness_bound || options.mode == AsyncMode::kGeo ||
      options.mode == AsyncMode::kEasgd) {
    return options;
  }
  options.max_merge_var_num = static_cast<uint32_t>(trainer.communicator_max_merge_var_num);
  options.send_queue_size = static_cast<uint32_t>(trainer.communicator_send_queue_size);
  options.min_send_grad_num_before_recv =
      static_cast<uint32_t>(trainer.communicator_min_send_grad_num_before_recv);
  options.independent_recv = trainer.communicator_independent_recv_thread;
  options.merge_by_sum = trainer.origins.count("communicator_is_sgd_optimizer") > 0
                             ? trainer.communicator_is_sgd_optimizer
                             : merge_by_sum;
  return options;
}

std::shared_ptr<StrategyRuntime> make_async_worker(AsyncJob job, fluid::Program origin) {
  prepare(job);
  return std::make_shared<AsyncWorkerProcess>(std::move(job), std::move(origin));
}

std::shared_ptr<StrategyRuntime> make_async_server(AsyncJob job) {
  prepare(job);
  return std::make_shared<AsyncServerProcess>(std::move(job));
}

}  // namespace fleet::strategies

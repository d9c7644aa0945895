#include "strategies/jobs/async_runtime.h"

#include "strategies/jobs/process_runtime_impl.h"
#include "strategies/parameter_server/asynchronous/async_server_runtime.h"
#include "strategies/parameter_server/asynchronous/async_worker_runtime.h"

namespace fleet::strategies {
namespace {

class AsyncWorkerProcess final : public WorkerProcess<AsyncWorkerRuntime>, public ThreadedRuntime {
 public:
  using WorkerProcess::WorkerProcess;
  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override {
    runtime_.enter_thread(thread, scope, parent);
  }
  void leave_thread(fluid::Scope& scope) override { runtime_.leave_thread(scope); }
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
  return std::make_shared<AsyncWorkerProcess>(std::move(job.config), std::move(job.options),
                                              job.transport, std::move(origin),
                                              std::move(job.server_names), job.logger);
}

std::shared_ptr<StrategyRuntime> make_async_server(AsyncJob job) {
  prepare(job);
  return std::make_shared<ServerProcess<AsyncServerRuntime>>(
      std::move(job.config), std::move(job.options), job.transport, job.logger);
}

}  // namespace fleet::strategies

#include "strategies/parameter_server/worker/worker_loops.h"

#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/worker/shared_loop.h"

namespace fleet::strategies {
namespace {

// Servers of the same machine answer while a worker gives way: measured by benchmarks/bench_jobs.
constexpr int kYields = 30;

struct BackgroundThreads {
  explicit BackgroundThreads(transport::TransportChoice transport) : network(transport) {}

  transport::AsioNetwork network;
  transport::LoopThread control{"control"};
  SharedLoop data{"data"};
};

}  // namespace

WorkerLoops loops_of_process(const AsyncOptions& options, transport::TransportChoice transport) {
  if (is_synchronous(options.mode)) {
    auto process = std::make_shared<ProcessEnvironment>(transport, kYields);
    NodeEnvironment node = process->node();
    return {.owner = std::move(process), .node = std::move(node), .requests = nullptr};
  }
  auto threads = std::make_shared<BackgroundThreads>(transport);
  NodeEnvironment node = make_environment(threads->network, threads->data.loop(), threads->control);
  node.end_threads = [&threads = *threads] {
    threads.data.end();
    threads.control.stop_and_join();
  };
  RequestLoop* const requests = &threads->data;
  return {.owner = std::move(threads), .node = std::move(node), .requests = requests};
}

}  // namespace fleet::strategies

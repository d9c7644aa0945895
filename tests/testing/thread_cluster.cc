#include "tests/testing/thread_cluster.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <gtest/gtest.h>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "strategies/parameter_server/server/server_runtime.h"
#include "tests/testing/ports.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

const strategies::AsyncOptions kInStep{.mode = strategies::ServerMode::kSync};

using strategies::ParameterServerConfig;

std::vector<std::byte> bytes_of(const fluid::Tensor& tensor) {
  return {tensor.raw(), tensor.raw() + tensor.bytes()};
}

// Where servers are, known as soon as they listen.
class Addresses {
 public:
  explicit Addresses(int servers) : endpoints_(static_cast<size_t>(servers)) {}
  void set(int server, Endpoint endpoint) {
    const std::lock_guard lock(mutex_);
    endpoints_[static_cast<size_t>(server)] = std::move(endpoint);
    changed_.notify_all();
  }
  // Blocks until servers [0, count) have set theirs. Empty when it was given up.
  std::vector<Endpoint> wait(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      if (given_up_) return true;
      for (int i = 0; i < count; ++i) {
        if (endpoints_[static_cast<size_t>(i)].port == 0) return false;
      }
      return true;
    });
    return given_up_ ? std::vector<Endpoint>() : endpoints_;
  }
  void give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Endpoint> endpoints_;
  bool given_up_ = false;
};

class ThreadCluster {
 public:
  ThreadCluster(const TrainingTask& task, const ThreadJob& job)
      : task_(task), job_(job), addresses_(job.servers), connecting_(job.workers) {
    shards_ = job.shards == 0 ? job.workers : job.shards;
    for (int i = 0; i < job.servers; ++i) names_.push_back(str_cat("127.0.0.1:", 6174 + i));
    ports_ = std::vector<HeldPort>(fixed_ports() ? static_cast<size_t>(job.servers) : 0);
    outcome_.parameters.resize(static_cast<size_t>(job.workers));
    outcome_.losses.resize(static_cast<size_t>(job.workers));
    outcome_.servers.resize(static_cast<size_t>(job.servers));
  }

  ThreadOutcome run() {
    std::vector<std::thread> threads;
    threads.reserve(outcome_.servers.size() + outcome_.losses.size());
    if (job_.workers_first) {
      for (int i = 0; i < job_.servers; ++i) addresses_.set(i, {"127.0.0.1", port_for(i)});
    }
    for (int i = 0; i < job_.servers; ++i) {
      threads.emplace_back([this, i] { guarded(str_cat("server ", i), [&] { serve(i); }); });
    }
    for (int i = 0; i < job_.workers; ++i) {
      threads.emplace_back([this, i] { guarded(str_cat("worker ", i), [&] { train(i); }); });
    }
    for (auto& thread : threads) thread.join();
    if (proxies_) outcome_.cuts = proxies_->cuts();
    return std::move(outcome_);
  }

 private:
  void guarded(const std::string& who, const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      addresses_.give_up();
      const std::lock_guard lock(mutex_);
      outcome_.errors.push_back(str_cat(who, ": ", error.what()));
    }
  }

  transpiler::DistributeTranspiler transpile(int trainer) const {
    transpiler::DistributeTranspiler transpiler(job_.config);
    transpiler::TranspileOptions options;
    options.trainer_id = trainer;
    options.program = task_.main;
    options.startup_program = task_.startup;
    options.pservers = join(names_, ",");
    options.trainers = shards_;
    transpiler.transpile(options);
    return transpiler;
  }

  ParameterServerConfig config_for(int index, std::vector<Endpoint> servers) const {
    ParameterServerConfig config;
    config.index = static_cast<uint32_t>(index);
    config.worker_num = static_cast<uint32_t>(job_.workers);
    config.logical_shards = static_cast<uint32_t>(shards_);
    config.servers = std::move(servers);
    config.job_id = "threads";
    config.secret = transport::Secret::of_text("a secret among threads", "test");
    config.facts = {{"program", str_cat(task_.main->hash())}};
    config.data_lanes = job_.lanes;
    config.gradient_window_bytes = job_.window_bytes;
    config.narrow_rows = job_.narrow_rows;
    config.update_threads = 2;
    config.save_folders = {::testing::TempDir()};
    config.rpc_deadline = std::chrono::seconds(30);
    return config;
  }

  bool fixed_ports() const { return job_.transport == transport::TransportChoice::kUnix; }
  // The kernel's choice, but Unix sockets alone have no such thing.
  uint16_t port_for(int index) const {
    return fixed_ports() ? ports_[static_cast<size_t>(index)].port() : 0;
  }

  void serve(int index) {
    const auto transpiler = transpile(0);
    auto programs = transpiler.get_pserver_programs(names_[static_cast<size_t>(index)]);
    if (job_.workers_first) connecting_.wait();
    std::vector<Endpoint> servers(names_.size());
    if (index > 0) servers = addresses_.wait(1);
    if (servers.empty()) return;
    for (int i = 0; fixed_ports() && i < job_.servers; ++i) {
      servers[static_cast<size_t>(i)] = {"127.0.0.1", port_for(i)};
    }
    servers[static_cast<size_t>(index)] = {"127.0.0.1", port_for(index)};
    ParameterServerConfig config = config_for(index, std::move(servers));
    const auto observer = std::make_shared<strategies::JobObserver>();
    config.observer = observer;
    strategies::ServerRuntime::Events events;
    events.on_listening = [this, index](const Endpoint& bound) { addresses_.set(index, bound); };
    const auto runtime = std::make_shared<strategies::ServerRuntime>(
        std::move(config), kInStep, job_.transport, Logger(), std::move(events));
    programs.main.set_runtime(runtime);
    fluid::Executor executor;
    executor.run(programs.startup);
    if (job_.before_serving) job_.before_serving(programs.startup, executor.scope());
    executor.run(programs.main);
    const std::lock_guard lock(mutex_);
    outcome_.servers[static_cast<size_t>(index)] = {observer->bytes_in, observer->bytes_out};
  }

  transport::TransportChoice transport_of(int worker) const {
    return job_.faults || worker == job_.late_worker ? transport::TransportChoice::kTcp
                                                     : job_.transport;
  }
  // The servers, or the proxies in front of them.
  std::vector<Endpoint> reach(int worker, const std::vector<Endpoint>& servers) {
    const std::lock_guard lock(mutex_);
    if (worker == job_.late_worker) {
      late_.emplace(servers, ProxyFaults{.control_lanes_late = job_.join_delay});
      return late_->endpoints();
    }
    if (!job_.faults) return servers;
    if (!proxies_) proxies_.emplace(servers, *job_.faults);
    return proxies_->endpoints();
  }

  void train(int index) {
    const ShardRange own = owned_shards(index, job_.workers, shards_);
    const auto transpiler = transpile(own.begin);
    const fluid::Program& trainer = transpiler.get_trainer_program();
    std::vector<fluid::Program> mains = {trainer};
    if (job_.programs) mains = job_.programs(trainer);
    fluid::Program startup = transpiler.get_trainer_startup_program();
    const auto servers = addresses_.wait(job_.servers);
    if (servers.empty()) return;
    const ParameterServerConfig config = config_for(index, reach(index, servers));
    const auto runtime = std::make_shared<strategies::WorkerRuntime>(
        config, kInStep, transport_of(index), *task_.main, names_);
    for (auto& main : mains) main.set_runtime(runtime);
    startup.set_runtime(runtime);
    fluid::Executor executor = trainer_executor(task_);
    runtime->init_worker();
    connecting_.count_down();
    executor.run(startup);
    if (job_.before_steps) job_.before_steps(*runtime, executor);
    std::vector<float> losses;
    const auto at = static_cast<size_t>(index);
    const int steps = at < job_.uneven_steps.size() ? job_.uneven_steps[at] : task_.steps;
    for (int step = 0; step < steps; ++step) {
      const fluid::Program& main = mains[static_cast<size_t>(step) % mains.size()];
      if (job_.next_feed && step + 1 < steps) {
        runtime->will_feed(main, job_.next_feed(step + 1, own.begin, own.end, shards_));
      }
      const auto fetched =
          executor.run(main, task_.feed(step, own.begin, own.end, shards_), {task_.loss});
      losses.push_back(fetched.front().item<float>());
      if (job_.after_step) job_.after_step(index, main, executor);
      if (job_.keep_steps) keep_step(*runtime);
    }
    if (job_.after_steps) job_.after_steps(index, *runtime, executor);
    fluid::Scope gathered;
    bool first = false;
    if (job_.uneven_steps.empty()) {
      runtime->barrier_worker();
      first = runtime->gather_persistables(gathered);
    }
    runtime->stop_worker();
    const std::lock_guard lock(mutex_);
    outcome_.parameters[static_cast<size_t>(index)] =
        values_of(*task_.main, executor.scope(), true);
    outcome_.losses[static_cast<size_t>(index)] = losses;
    if (first) outcome_.persistables = values_of(*task_.main, gathered, false);
  }

  void keep_step(strategies::WorkerRuntime& runtime) {
    runtime.barrier_worker();
    fluid::Scope gathered;
    if (runtime.gather_persistables(gathered)) {
      outcome_.kept_steps.push_back(values_of(*task_.main, gathered, false));
    }
    runtime.barrier_worker();
  }

  const TrainingTask& task_;
  const ThreadJob& job_;
  int shards_ = 1;
  std::vector<std::string> names_;
  std::vector<HeldPort> ports_;  // of Unix sockets alone
  Addresses addresses_;
  std::latch connecting_;
  std::mutex mutex_;
  std::optional<DelayProxies> proxies_;
  std::optional<DelayProxies> late_;  // of the late worker
  ThreadOutcome outcome_;
};

}  // namespace

TrainerPlace& trainer_place() {
  static TrainerPlace place;
  return place;
}

fluid::Executor trainer_executor(const TrainingTask& task) {
  const bool usual = task.place.is_cpu() && task.kernels == nullptr;
  const TrainerPlace& all = trainer_place();
  return fluid::Executor(usual ? all.place : task.place,
                         {.kernels = usual ? all.kernels : task.kernels});
}

Values values_of(const fluid::Program& program, const fluid::Scope& scope, bool parameters_only) {
  Values values;
  for (const fluid::VarDesc* desc : program.global_block().vars()) {
    const bool wanted = parameters_only ? desc->is_parameter : desc->persistable;
    const fluid::Value* value = scope.find(desc->name);
    const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (wanted && tensor != nullptr && tensor->initialized())
      values[desc->name] = bytes_of(tensor->copy_to(fluid::CPUPlace()));
  }
  return values;
}

std::vector<float> mean_over_workers(const std::vector<std::vector<float>>& losses) {
  std::vector<float> means(losses.front().size());
  for (size_t step = 0; step < means.size(); ++step) {
    std::vector<float> row;
    row.reserve(losses.size());
    for (const auto& own : losses) row.push_back(own.at(step));
    for (; row.size() > 1; row.resize(row.size() / 2)) {
      for (size_t i = 0; i < row.size() / 2; ++i) row[i] = (row[2 * i] + row[2 * i + 1]) / 2;
    }
    means[step] = row.front();
  }
  return means;
}

ThreadOutcome train_in_threads(const TrainingTask& task, const ThreadJob& job) {
  ThreadCluster cluster(task, job);
  return cluster.run();
}

LocalOutcome train_locally(const TrainingTask& task, int shards, bool keep_steps) {
  LocalOutcome outcome;
  fluid::Executor executor(task.place, {.logical_shards = shards, .kernels = task.kernels});
  executor.run(*task.startup);
  for (int step = 0; step < task.steps; ++step) {
    const auto fetched = executor.run(*task.main, task.feed(step, 0, shards, shards), {task.loss});
    outcome.losses.push_back(fetched.front().item<float>());
    if (keep_steps) {
      outcome.kept_steps.push_back(values_of(*task.main, executor.scope(), false));
    }
  }
  outcome.parameters = values_of(*task.main, executor.scope(), true);
  outcome.persistables = values_of(*task.main, executor.scope(), false);
  return outcome;
}

std::vector<std::string> differing_steps(const std::vector<Values>& job,
                                         const std::vector<Values>& local) {
  std::vector<std::string> differing;
  if (job.size() != local.size()) differing.push_back(str_cat(job.size(), " steps were kept"));
  for (size_t step = 0; step < std::min(job.size(), local.size()); ++step) {
    for (const auto& [name, bytes] : job[step]) {
      const auto found = local[step].find(name);
      if (found == local[step].end() || found->second != bytes) {
        differing.push_back(str_cat(name, " after step ", step));
      }
    }
  }
  return differing;
}

}  // namespace fleet::testing

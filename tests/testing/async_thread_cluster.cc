#include "tests/testing/async_thread_cluster.h"

#include <condition_variable>
#include <exception>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>
#include <utility>

#include "base/strings.h"
#include "fluid/executor/training/trainer_threads.h"
#include "strategies/parameter_server/server/server_runtime.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using strategies::DelayCompensation;

class AsyncThreadCluster {
 public:
  AsyncThreadCluster(const TrainingTask& task, const AsyncThreadJob& job)
      : task_(task), job_(job), endpoints_(static_cast<size_t>(job.servers)) {
    for (int i = 0; i < job.servers; ++i) names_.push_back(str_cat("127.0.0.1:", 6174 + i));
    outcome_.losses.resize(static_cast<size_t>(job.workers));
    outcome_.parameters.resize(static_cast<size_t>(job.workers));
    outcome_.events.resize(static_cast<size_t>(job.servers));
    outcome_.servers.resize(static_cast<size_t>(job.servers));
  }

  AsyncThreadOutcome run() {
    std::vector<std::thread> threads;
    threads.reserve(outcome_.servers.size() + outcome_.losses.size());
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
      const std::lock_guard lock(mutex_);
      given_up_ = true;
      outcome_.errors.push_back(str_cat(who, ": ", error.what()));
      changed_.notify_all();
    }
  }

  // Blocks until servers [0, count) listen; empty when somebody failed.
  std::vector<Endpoint> wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      for (int i = 0; i < count; ++i) {
        if (endpoints_[static_cast<size_t>(i)].port == 0) return given_up_;
      }
      return true;
    });
    return given_up_ ? std::vector<Endpoint>() : endpoints_;
  }

  transpiler::DistributeTranspiler transpile(int trainer, bool runtime_split) const {
    transpiler::DistributeTranspilerConfig config = job_.config;
    const auto& options = job_.options;
    config.sync_mode = false;
    config.runtime_split_send_recv = runtime_split;
    config.half_async = options.mode == ServerMode::kHalfAsync;
    config.geo_sgd_mode = sends_differences(options.mode);
    if (options.delay_compensation.form != DelayCompensation::kNone) {
      config.enable_dc_asgd = true;
      config.dc_asgd_form = strategies::to_string(options.delay_compensation.form);
    }
    transpiler::DistributeTranspiler transpiler(config);
    transpiler::TranspileOptions transpile;
    transpile.trainer_id = trainer;
    transpile.program = task_.main;
    transpile.startup_program = task_.startup;
    transpile.pservers = join(names_, ",");
    transpile.trainers = job_.workers;
    transpile.sync_mode = false;
    transpiler.transpile(transpile);
    return transpiler;
  }

  strategies::ParameterServerConfig config_for(int index, std::vector<Endpoint> servers) const {
    strategies::ParameterServerConfig config;
    config.index = static_cast<uint32_t>(index);
    config.worker_num = static_cast<uint32_t>(job_.workers);
    config.servers = std::move(servers);
    config.job_id = "asynchronous threads";
    config.on_nonfinite = job_.on_nonfinite;
    config.secret = transport::Secret::of_text("a secret among threads", "test");
    config.facts = strategies::async_facts(job_.options);
    config.data_lanes = job_.lanes;
    config.narrow_rows = job_.narrow_rows;
    config.hot_row_steps = job_.hot_row_steps;
    config.save_folders = {::testing::TempDir()};
    config.rpc_deadline = std::chrono::seconds(60);
    return config;
  }

  std::vector<fluid::Program> trainer_programs(int trainer) const {
    const auto make = [&](bool runtime_split) {
      return transpile(trainer, runtime_split).get_trainer_program();
    };
    if (!job_.programs) return {make(job_.runtime_split)};
    return job_.programs(make);
  }

  void serve(int index) {
    const auto at = static_cast<size_t>(index);
    auto programs = transpile(0, job_.runtime_split).get_pserver_programs(names_[at]);
    std::vector<Endpoint> servers(names_.size());
    if (index > 0) servers = wait_for(1);
    if (servers.empty()) return;
    servers[at] = {"127.0.0.1", 0};
    strategies::ParameterServerConfig config = config_for(index, std::move(servers));
    const auto observer = std::make_shared<strategies::JobObserver>();
    config.observer = observer;
    strategies::ServerRuntime::Events events;
    events.on_listening = [this, at](const Endpoint& bound) {
      const std::lock_guard lock(mutex_);
      endpoints_[at] = bound;
      changed_.notify_all();
    };
    events.on_event = [this, at](const strategies::AsyncEvent& event) {
      outcome_.events[at].push_back(event);
    };
    const auto runtime = std::make_shared<strategies::ServerRuntime>(
        std::move(config), job_.options, transport::TransportChoice::kAuto, Logger(),
        std::move(events));
    programs.main.set_runtime(runtime);
    fluid::Executor executor;
    executor.run(programs.startup);
    if (job_.before_serving) job_.before_serving(programs.startup, executor.scope());
    executor.run(programs.main);
    outcome_.servers[at] = {observer->bytes_in, observer->bytes_out};
    if (index == 0) outcome_.staleness = runtime->staleness();
  }

  // The servers, or the proxies in front of them.
  std::vector<Endpoint> reach(const std::vector<Endpoint>& servers) {
    if (!job_.faults) return servers;
    const std::lock_guard lock(mutex_);
    if (!proxies_) proxies_.emplace(servers, *job_.faults);
    return proxies_->endpoints();
  }

  void train(int index) {
    const auto at = static_cast<size_t>(index);
    const auto transpiler = transpile(index, job_.runtime_split);
    std::vector<fluid::Program> mains = trainer_programs(index);
    fluid::Program startup = transpiler.get_trainer_startup_program();
    const auto servers = wait_for(job_.servers);
    if (servers.empty()) return;
    const auto choice =
        job_.faults ? transport::TransportChoice::kTcp : transport::TransportChoice::kAuto;
    const auto runtime = std::make_shared<strategies::WorkerRuntime>(
        config_for(index, reach(servers)), job_.options, choice, *task_.main, names_);
    for (auto& main : mains) main.set_runtime(runtime);
    startup.set_runtime(runtime);
    std::optional<fluid::Executor> kept(trainer_executor(task_));
    fluid::Executor& executor = *kept;
    runtime->init_worker();
    executor.run(startup);
    if (job_.before_steps) job_.before_steps(*runtime, executor);
    runtime->barrier_worker();
    const auto threads = static_cast<int>(job_.options.trainer_threads);
    const auto body = [&](int thread, fluid::Executor& own, int round) {
      const int steps = at < job_.uneven_steps.size() ? job_.uneven_steps[at] : task_.steps;
      const int end = steps * (round + 1) / job_.rounds;
      for (int step = steps * round / job_.rounds; step < end; ++step) {
        const int part = index * threads + thread;
        const auto turn = static_cast<size_t>(step + thread) % mains.size();
        const auto fetched = own.run(
            mains[turn], task_.feed(step, part, part + 1, job_.workers * threads), {task_.loss});
        if (thread == 0) outcome_.losses[at].push_back(fetched.front().item<float>());
        if (thread == 0 && job_.after_step) job_.after_step(index, mains[turn], own);
        if (job_.keep_steps) keep_step(*runtime);
      }
      if (thread == 0 && job_.after_steps) job_.after_steps(index, *runtime, own);
    };
    if (threads == 1 && job_.rounds == 1) {
      body(0, executor, 0);
    } else {
      for (int round = 0; round < job_.rounds; ++round) {
        fluid::run_trainer_threads(executor, mains.front(), job_.options.trainer_threads,
                                   [&](uint32_t thread, fluid::Executor& own) {
                                     body(static_cast<int>(thread), own, round);
                                   });
      }
    }
    fluid::Scope gathered;
    bool first = false;
    if (job_.uneven_steps.empty()) {
      runtime->barrier_worker();
      first = runtime->gather_persistables(gathered);
    }
    if (job_.drops_executor) kept.reset();
    runtime->stop_worker();
    if (job_.drops_executor) return;
    const std::lock_guard lock(mutex_);
    outcome_.parameters[at] = values_of(*task_.main, executor.scope(), true);
    if (first) outcome_.persistables = values_of(*task_.main, gathered, false);
  }

  void keep_step(strategies::WorkerRuntime& runtime) {
    fluid::Scope gathered;
    runtime.gather_persistables(gathered);
    outcome_.kept_steps.push_back(values_of(*task_.main, gathered, false));
  }

  const TrainingTask& task_;
  const AsyncThreadJob& job_;
  std::vector<std::string> names_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Endpoint> endpoints_;
  bool given_up_ = false;
  std::optional<DelayProxies> proxies_;
  AsyncThreadOutcome outcome_;
};

}  // namespace

AsyncThreadOutcome train_async_in_threads(const TrainingTask& task, const AsyncThreadJob& job) {
  AsyncThreadCluster cluster(task, job);
  return cluster.run();
}

}  // namespace fleet::testing

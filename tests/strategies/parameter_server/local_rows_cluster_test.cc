// Growing tables under GEO and EASGD: workers train rows of their own, and exchange what these
// changed by.
#include <chrono>
#include <condition_variable>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/persistables.h"
#include "fluid/tables/lookup/shared_table.h"
#include "strategies/parameter_server/protocol/local_exchange.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/growing_net.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

namespace rules = fluid::optimizer;
using fluid::ServerMode;
using fluid::tables::GrowingTable;

std::vector<float> values_in(fluid::Scope& scope, const std::string& table, uint64_t id) {
  return fluid::growing_table(scope, table)->reading([&](const GrowingTable& rows) {
    std::vector<float> values(rows.options().width);
    rows.find(std::vector{id}, values.data(), GrowingTable::Missing::kInitial);
    return values;
  });
}

Rows rows_in(fluid::Scope& scope) {
  Rows rows;
  for (const std::string& name : kTables) add_rows(name, *fluid::growing_table(scope, name), rows);
  return rows;
}

// Without states, which workers have.
Rows values_only(Rows rows) {
  for (auto& [key, floats] : rows) floats.resize(key.first == kTables[0] ? 6 : 3);
  return rows;
}

// A job step by step on one machine: workers take turns. Weights and rows of the servers begin as
// those of each worker.
class OneMachine {
 public:
  OneMachine(const GrowingNet& net, const strategies::AsyncOptions& options, int workers)
      : net_(net), options_(options), workers_(static_cast<size_t>(workers)) {
    for (Worker& worker : workers_) {
      worker.executor.run(net.startup());
      worker.old = weights_of(worker);
    }
    weights_ = weights_of(workers_.front());
  }

  void train(int steps) {
    const bool geo = options_.mode == ServerMode::kGeo;
    const auto every = static_cast<int>(geo ? options_.geo_update_frequency : options_.easgd_tau);
    for (int step = 0; step < steps; ++step) {
      for (size_t i = 0; i < workers_.size(); ++i) {
        Worker& worker = workers_[i];
        const auto part = static_cast<int>(i);
        const fluid::Feed feed =
            GrowingNet::feed(step, part, part + 1, static_cast<int>(workers_.size()));
        fetch_rows(worker, feed);
        const auto fetched = worker.executor.run(net_.main(), feed, {net_.loss()});
        worker.losses.push_back(fetched.front().item<float>());
        if ((step + 1) % every == 0) exchange(worker);
      }
    }
  }

  const Rows& rows() const { return rows_; }
  const std::vector<float>& losses(size_t worker) const { return workers_[worker].losses; }
  const std::map<std::string, std::vector<float>>& weights() const { return weights_; }

 private:
  using Key = std::pair<std::string, uint64_t>;
  struct Worker {
    fluid::Executor executor;
    std::map<std::string, std::vector<float>> old;  // GEO's snapshots of weights
    Rows old_rows;
    std::set<Key> looked_up;  // since the last exchange
    std::vector<float> losses;
  };

  std::map<std::string, std::vector<float>> weights_of(Worker& worker) const {
    std::map<std::string, std::vector<float>> weights;
    for (const fluid::VarDesc* param : net_.main().global_block().parameters()) {
      if (param->kind != fluid::VarKind::kLodTensor) continue;
      const auto values = worker.executor.scope().tensor(param->name).values<float>();
      weights[param->name] = {values.begin(), values.end()};
    }
    return weights;
  }

  std::vector<float>& row_of_servers(const Key& key) {
    if (!rows_.contains(key)) rows_[key] = initial_rows(net_, {{key, {}}}).at(key);
    return rows_[key];
  }

  static void set_row(Worker& worker, const Key& key, const std::vector<float>& values) {
    fluid::growing_table(worker.executor.scope(), key.first)->alone([&](GrowingTable& rows) {
      std::vector<float> made(values.size());
      rows.rows(std::vector{key.second}, made.data());
      rows.set_values(std::vector{key.second}, values.data());
    });
  }

  // Rows that a worker looks up for the first time: of a round, or at all.
  void fetch_rows(Worker& worker, const fluid::Feed& feed) {
    for (const auto& [name, tensor] : feed) {
      if (name == "label") continue;
      for (const int64_t id : tensor.values<int64_t>()) {
        if (name == "c" && id == -1) continue;
        const Key key = {kTables[name == "c" ? 1 : 0], static_cast<uint64_t>(id)};
        const bool known = worker.old_rows.contains(key);
        const bool fresh = worker.looked_up.insert(key).second;
        if (!fresh || (known && options_.mode == ServerMode::kEasgd)) continue;
        const std::vector<float>& pulled = row_of_servers(key);
        std::vector<float> now = pulled;
        if (known) {
          now = values_in(worker.executor.scope(), key.first, key.second);
          strategies::geo_receive<float>(pulled, now, worker.old_rows.at(key));
        }
        worker.old_rows[key] = pulled;
        set_row(worker, key, now);
      }
    }
  }

  void exchange(Worker& worker) {
    for (auto& [name, server] : weights_) {
      fluid::Tensor& own = worker.executor.scope().tensor(name);
      const std::span<float> now(own.data<float>(), static_cast<size_t>(own.numel()));
      exchange(now, worker.old.at(name), server);
      if (options_.mode == ServerMode::kGeo) {
        strategies::geo_receive<float>(server, now, worker.old.at(name));
      }
    }
    for (const Key& key : std::exchange(worker.looked_up, {})) {
      std::vector<float> now = values_in(worker.executor.scope(), key.first, key.second);
      exchange(now, worker.old_rows.at(key), row_of_servers(key));
      set_row(worker, key, now);
    }
  }

  void exchange(std::span<float> now, std::span<float> old, std::span<float> server) const {
    std::vector<float> difference(now.size());
    if (options_.mode == ServerMode::kGeo) {
      strategies::geo_difference<float>(now, old, static_cast<uint32_t>(workers_.size()),
                                        difference);
    } else {
      strategies::easgd_difference<float>(now, server, options_.easgd_alpha, difference);
    }
    for (size_t i = 0; i < now.size(); ++i) server[i] += difference[i];
  }

  const GrowingNet& net_;
  const strategies::AsyncOptions options_;
  std::vector<Worker> workers_;
  std::map<std::string, std::vector<float>> weights_;
  Rows rows_;
};

// A trainer's program as the job's workers have it.
fluid::Program job_program(const GrowingNet& net, const AsyncThreadJob& job) {
  std::vector<std::string> servers;
  servers.reserve(static_cast<size_t>(job.servers));
  for (int i = 0; i < job.servers; ++i) servers.push_back(str_cat("127.0.0.1:", 6174 + i));
  transpiler::DistributeTranspilerConfig config;
  config.sync_mode = false;
  config.geo_sgd_mode = true;
  transpiler::DistributeTranspiler transpiler(config);
  transpiler.transpile({.trainer_id = 0,
                        .program = &net.main(),
                        .pservers = join(servers, ","),
                        .trainers = job.workers,
                        .startup_program = &net.startup()});
  return transpiler.get_trainer_program();
}

AsyncThreadJob job_of(ServerMode mode, uint32_t every) {
  AsyncThreadJob job;
  job.options.mode = mode;
  job.options.independent_recv = false;
  job.options.geo_update_frequency = every;
  job.options.easgd_tau = every;
  job.options.easgd_alpha = 0.25;
  return job;
}

// Whose step it is.
class Turns {
 public:
  explicit Turns(int workers) : workers_(workers) {}
  void wait_for(int worker) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(60),
                                        [&] { return steps_ % workers_ == worker; });
    EXPECT_TRUE(came) << "the other worker does not go on";
  }
  void next() {
    const std::lock_guard lock(mutex_);
    ++steps_;
    changed_.notify_all();
  }

 private:
  const int workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int steps_ = 0;
};

void expect_bits_of_one_machine(const GrowingNetOptions& options, AsyncThreadJob job) {
  SCOPED_TRACE(str_cat(fluid::to_string(job.options.mode), ", ", job.workers, " workers, ",
                       job.servers, " servers, ", job.lanes, " lanes, every ",
                       job.options.geo_update_frequency));
  constexpr int kSteps = 12;
  const GrowingNet net(options);
  OneMachine machine(net, job.options, job.workers);
  machine.train(kSteps);
  ServerTables tables;
  tables.watch(job);
  Turns turns(job.workers);
  TrainingTask task = net.task(kSteps);
  task.feed = [&](int step, int begin, int end, int parts) {
    turns.wait_for(begin);
    return GrowingNet::feed(step, begin, end, parts);
  };
  // What a worker sent has arrived when it is another one's turn.
  job.after_step = [&](int, const fluid::Program& main, fluid::Executor&) {
    auto& runtime = dynamic_cast<strategies::WorkerRuntime&>(*main.runtime());
    fluid::Scope pulled;
    runtime.pull({machine.weights().begin()->first}, pulled);
    turns.next();
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    EXPECT_EQ(outcome.losses[i], machine.losses(i)) << "worker " << i;
  }
  const Rows rows = tables.rows();
  EXPECT_EQ(rows, values_only(rows)) << "servers have states";
  for (const auto& [key, values] : machine.rows()) {
    // Rows that did not change are on no server.
    const auto found = rows.find(key);
    const std::vector<float> there =
        found != rows.end() ? found->second : initial_rows(net, {{key, {}}}).at(key);
    EXPECT_EQ(there, values) << key.first << " " << key.second;
  }
  EXPECT_GT(rows.size(), 20U);
  for (const auto& [name, values] : machine.weights()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    const std::vector<std::byte> expected(bytes, bytes + values.size() * sizeof(float));
    EXPECT_TRUE(outcome.persistables.at(name) == expected) << name;
  }
}

void expect_bits_in_every_form(ServerMode mode) {
  const MinimizeTables adam = [](const auto& loss) {
    rules::Adam({.learning_rate = 0.01}).minimize(loss);
  };
  const MinimizeTables clipped = [](const auto& loss) {
    rules::SGD({.learning_rate = 0.1, .grad_clip = fluid::clip::GradientClipByNorm(0.05)})
        .minimize(loss);
  };
  for (const uint32_t every : {1U, 3U, 4U}) {
    AsyncThreadJob job = job_of(mode, every);
    for (const int servers : {1, 3}) {
      job.servers = servers;
      for (const int workers : {1, 2, 3}) {
        job.workers = workers;
        expect_bits_of_one_machine({}, job);
      }
    }
    job.workers = 2;
    job.lanes = 2;
    expect_bits_of_one_machine({.minimize = adam}, job);
    expect_bits_of_one_machine({.minimize = clipped}, job);
    expect_bits_of_one_machine({.entry = fluid::ProbabilityEntry{0.5}}, job);
  }
}

TEST(LocalRowsCluster, WorkersInTurnsHaveTheBitsOfOneMachineUnderGeo) {
  expect_bits_in_every_form(ServerMode::kGeo);
}

TEST(LocalRowsCluster, WorkersInTurnsHaveTheBitsOfOneMachineUnderEasgd) {
  expect_bits_in_every_form(ServerMode::kEasgd);
}

// What is under way when a lookup asks for rows has arrived first.
TEST(LocalRowsCluster, OneWorkerLosesNothingWhereValuesComeInTheBackground) {
  for (const uint32_t lanes : {1U, 2U}) {
    AsyncThreadJob job = job_of(ServerMode::kGeo, 2);
    job.options.independent_recv = true;
    job.lanes = lanes;
    job.workers = 1;
    const GrowingNet net({});
    ServerTables tables;
    tables.watch(job);
    Rows own;
    job.after_steps = [&own](int, strategies::WorkerRuntime&, fluid::Executor& executor) {
      own = rows_in(executor.scope());
    };
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(10), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    const Rows rows = tables.rows();
    EXPECT_GT(rows.size(), 20U);
    for (const auto& [key, values] : rows) {
      ASSERT_TRUE(own.contains(key)) << key.second;
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(own.at(key)[i], values[i], 1e-6) << key.first << " " << key.second;
      }
    }
  }
}

TEST(LocalRowsCluster, ThreadsGoOnFromWhatAllHaveTrained) {
  for (const ServerMode mode : {ServerMode::kGeo, ServerMode::kEasgd}) {
    SCOPED_TRACE(fluid::to_string(mode));
    const GrowingNet net({});
    AsyncThreadJob job = job_of(mode, 3);
    job.options.trainer_threads = 2;
    job.rounds = 3;
    ServerTables tables;
    tables.watch(job);
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(24), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    const Rows rows = tables.rows();
    EXPECT_GT(rows.size(), 100U);
    for (const auto& [key, initial] : initial_rows(net, rows)) {
      EXPECT_NE(rows.at(key), initial) << key.first << " " << key.second;
    }
    const auto mean_of = [](const std::vector<float>& all, size_t first) {
      float sum = 0;
      for (size_t i = first; i < first + 6; ++i) sum += all[i];
      return sum / 6;
    };
    for (const auto& losses : outcome.losses) {
      EXPECT_LT(mean_of(losses, losses.size() - 6), mean_of(losses, 0));
    }
  }
}

// A limit of memory is the servers': rows of a worker neither go nor start anew, and what it has is
// not saved as if it were the whole table.
TEST(LocalRowsCluster, WorkersHaveNoLimitOfMemoryAndSaveNoParts) {
  const GrowingNet net({.fields = {.seen = true}, .memory = {.bytes = 1}});
  AsyncThreadJob job = job_of(ServerMode::kGeo, 100);
  job.workers = 1;
  size_t rows = 0;
  bool refused = false;
  job.after_steps = [&](int, strategies::WorkerRuntime&, fluid::Executor& executor) {
    rows = rows_in(executor.scope()).size();
    const std::string folder = ::testing::TempDir() + "part-of-a-table";
    try {
      fluid::save_persistables(executor, folder, net.main());
    } catch (const UsageError& error) {
      refused = std::string(error.what()).find("fleet::save_persistables") != std::string::npos;
    }
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(net.task(3), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_GT(rows, 30U);
  EXPECT_TRUE(refused);
}

// What the executor trained before threads began counts, too.
TEST(LocalRowsCluster, ThreadsBeginWithWhatTheWorkerTrained) {
  const GrowingNet net({});
  AsyncThreadJob job = job_of(ServerMode::kGeo, 100);
  job.workers = 1;
  job.options.trainer_threads = 2;
  ServerTables tables;
  tables.watch(job);
  Rows before;
  job.before_steps = [&](strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    fluid::Program main = job_program(net, job);
    main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
    executor.run(main, GrowingNet::feed(50, 0, 1, 1));
    before = rows_in(executor.scope());
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(net.task(1), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  const Rows rows = tables.rows();
  EXPECT_GT(before.size(), 10U);
  for (const auto& [key, values] : before) {
    EXPECT_TRUE(rows.contains(key)) << key.first << " " << key.second;
  }
}

// A test reads the worker's own rows, and of others what servers have; it makes none.
TEST(LocalRowsCluster, TestProgramsReadTheWorkersOwnRows) {
  const GrowingNet net({});
  AsyncThreadJob job = job_of(ServerMode::kGeo, 100);
  job.workers = 1;
  std::vector<fluid::Program> programs;
  job.programs = [](const auto& transpile) {
    const fluid::Program trainer = transpile(true);
    return std::vector<fluid::Program>{trainer, trainer.clone(true)};
  };
  ServerTables tables;
  tables.watch(job);
  fluid::Executor twin;
  twin.run(net.startup());
  const fluid::Program test = net.main().clone(true);
  std::vector<float> expected;
  uint64_t rows = 0;
  job.after_step = [&](int, const fluid::Program& main, fluid::Executor& executor) {
    const auto step = static_cast<int>(expected.size());
    const bool trains = step % 2 == 0;
    const auto fetched =
        twin.run(trains ? net.main() : test, GrowingNet::feed(step, 0, 1, 1), {net.loss()});
    expected.push_back(fetched.front().item<float>());
    const uint64_t now = rows_in(executor.scope()).size();
    if (!trains) {
      EXPECT_EQ(now, rows) << main.to_string();
    }
    rows = now;
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(net.task(6), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_EQ(outcome.losses[0], expected);
}

}  // namespace
}  // namespace fleet::testing

// Passes of growing tables, and models with them, in jobs of threads over real sockets.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/checkpoint.h"
#include "fluid/io/growing_tables.h"
#include "fluid/io/inference_model.h"
#include "fluid/io/persistables.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/growing_net.h"

namespace fleet::testing {
namespace {

using fluid::tables::PassRule;
using fluid::tables::RowRank;
using strategies::WorkerRuntime;

constexpr int kSteps = 8;

WorkerRuntime& runtime_of(const fluid::Program& main) {
  return dynamic_cast<WorkerRuntime&>(*main.runtime());
}

GrowingNetOptions with_fields() {
  return {.fields = {.seen = true, .count = true}};
}

std::vector<uint64_t> rows_by_table(const ServerTables& tables) {
  std::vector<uint64_t> counts(kTables.size());
  for (const auto& [key, floats] : tables.rows()) counts[key.first == kTables[0] ? 0 : 1] += 1;
  return counts;
}

struct Passes {
  Rows rows;
  std::vector<uint64_t> gone;
};

// A pass ends behind each second step.
Passes passes_of_one_machine(const GrowingNet& net, int shards, const PassRule& rule) {
  Passes passes;
  fluid::Executor executor(fluid::CPUPlace(), {.logical_shards = shards});
  executor.run(net.startup());
  for (int step = 0; step < kSteps; ++step) {
    executor.run(net.main(), GrowingNet::feed(step, 0, shards, shards));
    if (step % 2 == 0) continue;
    passes.gone.push_back(fluid::growing_table(executor.scope(), kTables[0])->alone([&](auto& all) {
      return all.end_pass(rule);
    }));
  }
  for (const std::string& name : kTables) {
    add_rows(name, *fluid::growing_table(executor.scope(), name), passes.rows);
  }
  return passes;
}

void expect_passes_of_one_machine(const PassRule& rule, ThreadJob job) {
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers"));
  const GrowingNet net(with_fields());
  const Passes machine = passes_of_one_machine(net, job.workers, rule);
  ServerTables tables;
  tables.watch(job);
  std::mutex mutex;
  std::map<int, std::vector<uint64_t>> gone;  // by worker
  std::map<int, int> steps;
  job.after_step = [&](int worker, const fluid::Program& main, fluid::Executor& executor) {
    int step = 0;
    {
      const std::lock_guard lock(mutex);
      step = steps[worker]++;
    }
    if (step % 2 == 0) return;
    const uint64_t rows = runtime_of(main).end_pass(kTables[0], rule, executor.scope());
    const std::lock_guard lock(mutex);
    gone[worker].push_back(rows);
  };
  const ThreadOutcome threads = train_in_threads(net.task(kSteps), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  EXPECT_EQ(tables.rows(), machine.rows);
  for (int worker = 0; worker < job.workers; ++worker) EXPECT_EQ(gone[worker], machine.gone);
  uint64_t all = 0;
  for (const uint64_t rows : machine.gone) all += rows;
  EXPECT_GT(all, 10U);
}

TEST(TableOrdersCluster, PassesEndOnServersAsOnOneMachine) {
  const PassRule unseen{.shrink = {.delete_unseen = 1}};
  const PassRule rare{.rank = RowRank::kCount, .evict_below = 2};
  const PassRule small{.rank = RowRank::kNorm, .evict_below = 1.0};
  for (const PassRule& rule : {unseen, rare, small}) {
    expect_passes_of_one_machine(rule, {.workers = 2, .servers = 2});
    expect_passes_of_one_machine(rule, {.workers = 4, .servers = 3});
  }
  // How many may stay is divided by server.
  expect_passes_of_one_machine({.rank = RowRank::kSeen, .most_rows = 20},
                               {.workers = 2, .servers = 1});
}

// Workers that train alone have rows that servers have no longer; those that are looked up later
// come again.
TEST(TableOrdersCluster, PassesEndWhereWorkersTrainAlone) {
  for (const auto mode : {fluid::ServerMode::kGeo, fluid::ServerMode::kEasgd,
                          fluid::ServerMode::kAsync, fluid::ServerMode::kHalfAsync}) {
    SCOPED_TRACE(fluid::to_string(mode));
    const GrowingNet net({});
    ServerTables tables;
    AsyncThreadJob job;
    job.options.mode = mode;
    job.options.geo_update_frequency = 2;
    job.options.easgd_tau = 2;
    tables.watch(job);
    std::mutex mutex;
    uint64_t gone = 0;
    std::map<int, int> steps;
    uint64_t behind = 0;  // rows of the pass's table, of servers and of a worker that trains alone
    uint64_t own_behind = 0;
    job.after_step = [&](int worker, const fluid::Program& main, fluid::Executor& executor) {
      int step = 0;
      {
        const std::lock_guard lock(mutex);
        step = steps[worker]++;
      }
      if (step != 3) return;
      const PassRule rule{.rank = RowRank::kNorm, .evict_below = 1e9};
      const uint64_t rows = runtime_of(main).end_pass(kTables[1], rule, executor.scope());
      const fluid::Value* own = executor.scope().find(kTables[1]);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(gone == 0 || gone == rows);
      gone = rows;
      if (worker == 0) {
        behind = rows_by_table(tables)[1];
        if (own != nullptr && fluid::tables::table_of(*own) != nullptr) {
          own_behind = fluid::tables::table_of(*own)->statistics().rows;
        }
      }
    };
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(6), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    EXPECT_GT(gone, 10U);
    EXPECT_LT(behind, gone) << "the other worker may have gone on";
    EXPECT_EQ(own_behind, 0U);
    EXPECT_GT(rows_by_table(tables)[1], 5U) << "ids that came later";
  }
}

// What was asked ahead for the next step is not what the tables have then.
TEST(TableOrdersCluster, RowsThatWereAskedAheadEndWithThePass) {
  expect_passes_of_one_machine({.shrink = {.delete_unseen = 0}},
                               {.workers = 2, .servers = 2, .next_feed = GrowingNet::feed});
}

TEST(TableOrdersCluster, EveryWorkerHearsOfAPassThatCannotEnd) {
  const GrowingNet net({});
  ThreadJob job{.workers = 2, .servers = 2};
  std::mutex mutex;
  std::vector<std::string> said;
  job.after_steps = [&](int, WorkerRuntime& runtime, fluid::Executor& executor) {
    for (const std::string table : {"user", "users"}) {
      try {
        runtime.end_pass(table, {.shrink = {.delete_unseen = 1}}, executor.scope());
        ADD_FAILURE() << "nothing was refused";
      } catch (const UsageError& error) {
        const std::lock_guard lock(mutex);
        said.emplace_back(error.what());
      }
    }
  };
  const ThreadOutcome threads = train_in_threads(net.task(2), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  ASSERT_EQ(said.size(), 4U);
  const auto telling = [&said](const std::string& text) {
    return std::count_if(said.begin(), said.end(), [&text](const std::string& one) {
      return one.find(text) != std::string::npos;
    });
  };
  EXPECT_EQ(telling("did you mean 'users'"), 2);
  EXPECT_EQ(telling("fields.seen"), 1) << "worker 0 tells the reason";
  EXPECT_EQ(telling("worker 0"), 1);
}

class Models : public ::testing::Test {
 protected:
  // Where servers of threads may write.
  Models() {
    std::string folder = ::testing::TempDir() + "models-XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  ~Models() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

Rows rows_in(fluid::Scope& scope) {
  Rows rows;
  for (const std::string& name : kTables) add_rows(name, *fluid::growing_table(scope, name), rows);
  return rows;
}

// Saved by servers, by one process and by servers again, each time loaded by other ones.
TEST_F(Models, GoFromAnyNumberOfServersToAnyOther) {
  const GrowingNet net({.minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::Adam({.learning_rate = 0.01}).minimize(loss);
  }});
  const std::filesystem::path first = folder_ / "first";
  Rows trained;
  {
    ServerTables tables;
    ThreadJob job{.workers = 2, .servers = 2};
    tables.watch(job);
    job.after_steps = [&](int, WorkerRuntime& runtime, fluid::Executor& executor) {
      fluid::Program main = net.main();
      main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
      fluid::io::save_persistables(executor, first, main);
      runtime.barrier_worker();
    };
    const ThreadOutcome threads = train_in_threads(net.task(4), job);
    for (const auto& error : threads.errors) ADD_FAILURE() << error;
    trained = tables.rows();
  }
  fluid::Executor alone;
  alone.run(net.startup());
  fluid::io::load_persistables(alone, first, net.main());
  EXPECT_EQ(rows_in(alone.scope()), trained);
  const std::filesystem::path second = folder_ / "second";
  fluid::io::save_persistables(alone, second, net.main());
  for (const std::filesystem::path& model : {first, second}) {
    ServerTables tables;
    ThreadJob job{.workers = 2, .servers = 3};
    tables.watch(job);
    job.before_steps = [&](WorkerRuntime& runtime, fluid::Executor& executor) {
      fluid::Program main = net.main();
      main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
      fluid::io::load_persistables(executor, model, main);
    };
    const ThreadOutcome threads = train_in_threads(net.task(0), job);
    for (const auto& error : threads.errors) ADD_FAILURE() << error;
    EXPECT_EQ(tables.rows(), trained) << model;
  }
}

// A folder that servers may not use, and one without the files.
TEST_F(Models, AreRefusedInEveryWorker) {
  const GrowingNet net({});
  const std::filesystem::path model = folder_ / "model";
  fluid::Executor alone;
  alone.run(net.startup());
  alone.run(net.main(), GrowingNet::feed(0, 0, 1, 1));
  fluid::io::save_persistables(alone, model, net.main());
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    if (entry.path().extension() == ".table") std::filesystem::resize_file(entry.path(), 40);
  }
  ThreadJob job{.workers = 2, .servers = 2};
  std::mutex mutex;
  int refused = 0;
  int damaged = 0;
  job.before_steps = [&](WorkerRuntime& runtime, fluid::Executor& executor) {
    fluid::Program main = net.main();
    main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
    try {
      fluid::io::load_persistables(executor, model, main);
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      ++refused;
      damaged += error.code() == ErrorCode::kCorruptFile ? 1 : 0;
    }
  };
  job.after_steps = [&](int worker, WorkerRuntime& runtime, fluid::Executor&) {
    if (worker != 0) return;
    EXPECT_THROW(runtime.save_table(kTables[0], "/elsewhere", "t"), UsageError);
  };
  for (const auto& error : train_in_threads(net.task(1), job).errors) ADD_FAILURE() << error;
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(damaged, 1) << "worker 0 tells what a server says";
}

// The table that comes last is damaged; all can read the one before.
TEST_F(Models, AreLoadedByAllServersOrByNone) {
  const GrowingNet net({});
  const std::filesystem::path model = folder_ / "model";
  ThreadJob saves{.workers = 1, .servers = 2};
  saves.after_steps = [&](int, WorkerRuntime& runtime, fluid::Executor& executor) {
    fluid::Program main = net.main();
    main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
    fluid::io::save_persistables(executor, model, main);
  };
  for (const auto& error : train_in_threads(net.task(2), saves).errors) ADD_FAILURE() << error;
  const std::filesystem::path damaged =
      model / fluid::io::saved_tables(model).files.rbegin()->second.at(1);
  {
    std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('x');
  }
  ServerTables tables;
  ThreadJob job{.workers = 2, .servers = 2};
  tables.watch(job);
  std::mutex mutex;
  std::vector<std::string> said;
  job.before_steps = [&](WorkerRuntime& runtime, fluid::Executor& executor) {
    fluid::Program main = net.main();
    main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
    try {
      fluid::io::load_persistables(executor, model, main);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      said.emplace_back(error.what());
    }
  };
  for (const auto& error : train_in_threads(net.task(0), job).errors) ADD_FAILURE() << error;
  ASSERT_EQ(said.size(), 2U);
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [&](const std::string& text) {
    return text.find(damaged.filename()) != std::string::npos;
  })) << said[0];
  EXPECT_EQ(tables.count(), 0U) << "neither table of neither server";
}

// The other worker would have looked up rows of its next step by then.
TEST_F(Models, AreOfOneStepInSynchronousJobs) {
  const GrowingNet net(with_fields());
  constexpr int kWorkers = 2;
  std::mutex mutex;
  std::map<int, int> steps;
  ThreadJob job{.workers = kWorkers, .servers = 2};
  job.after_step = [&](int worker, const fluid::Program& main, fluid::Executor& executor) {
    int step = 0;
    {
      const std::lock_guard lock(mutex);
      step = steps[worker]++;
    }
    if (worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    fluid::Program source = net.main();
    source.set_runtime(main.runtime());
    fluid::io::save_persistables(executor, folder_ / std::to_string(step), source);
  };
  for (const auto& error : train_in_threads(net.task(4), job).errors) ADD_FAILURE() << error;
  fluid::Executor machine(fluid::CPUPlace(), {.logical_shards = kWorkers});
  machine.run(net.startup());
  for (int step = 0; step < 4; ++step) {
    SCOPED_TRACE(step);
    machine.run(net.main(), GrowingNet::feed(step, 0, kWorkers, kWorkers));
    const std::filesystem::path model = folder_ / std::to_string(step);
    fluid::Executor loaded;
    loaded.run(net.startup());
    fluid::io::load_persistables(loaded, model, net.main());
    EXPECT_EQ(rows_in(loaded.scope()), rows_in(machine.scope()));
    EXPECT_EQ(values_of(net.main(), loaded.scope(), false),
              values_of(net.main(), machine.scope(), false));
  }
}

// Of servers that are as many, other ones, and one.
TEST_F(Models, TakeThePlaceOfThoseThatOtherServersSaved) {
  const GrowingNet net({});
  const std::filesystem::path model = folder_ / "model";
  Rows trained;
  for (const int servers : {3, 2, 1}) {
    ServerTables tables;
    ThreadJob job{.workers = 1, .servers = servers};
    tables.watch(job);
    job.after_steps = [&](int, WorkerRuntime& runtime, fluid::Executor& executor) {
      fluid::Program main = net.main();
      main.set_runtime(std::shared_ptr<fluid::CommRuntime>(&runtime, [](auto*) {}));
      fluid::io::save_persistables(executor, model, main);
    };
    for (const auto& error : train_in_threads(net.task(servers), job).errors) {
      ADD_FAILURE() << error;
    }
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(model)) {
      files += entry.path().extension() == ".table" ? 1 : 0;
    }
    EXPECT_EQ(files, 2 * servers) << "two tables";
    fluid::Executor alone;
    alone.run(net.startup());
    fluid::io::load_persistables(alone, model, net.main());
    EXPECT_EQ(rows_in(alone.scope()), tables.rows());
  }
}

// Servers that begin with a model, as init_server(folder) has them.
TEST_F(Models, AreReadByServersThatBeginWithThem) {
  const GrowingNet net({});
  const std::filesystem::path model = folder_ / "model";
  fluid::Executor alone;
  alone.run(net.startup());
  for (int step = 0; step < 3; ++step) alone.run(net.main(), GrowingNet::feed(step, 0, 1, 1));
  fluid::io::save_persistables(alone, model, net.main());
  ServerTables tables;
  ThreadJob job{.workers = 1, .servers = 3};
  job.before_serving = [&](const fluid::Program& startup, fluid::Scope& scope) {
    fluid::io::load_slices(startup, scope, model);
    tables.keep(scope);
  };
  for (const auto& error : train_in_threads(net.task(0), job).errors) ADD_FAILURE() << error;
  EXPECT_EQ(tables.rows(), rows_in(alone.scope()));
}

// A server for others, in one process, follows the job by its deltas.
TEST_F(Models, AreFollowedByDeltasOfServers) {
  const GrowingNet net({.fields = {.seen = true}, .deltas = true});
  ServerTables tables;
  ThreadJob job{.workers = 2, .servers = 3};
  tables.watch(job);
  std::mutex mutex;
  std::map<int, int> steps;
  std::vector<std::vector<std::filesystem::path>> deltas;
  job.after_step = [&](int worker, const fluid::Program& main, fluid::Executor& executor) {
    int step = 0;
    {
      const std::lock_guard lock(mutex);
      step = steps[worker]++;
    }
    WorkerRuntime& runtime = runtime_of(main);
    runtime.end_pass(kTables[0], {.shrink = {.delete_unseen = 1}}, executor.scope());
    const auto files =
        runtime.save_table_delta(kTables[0], folder_ / str_cat(step, ".delta"), executor.scope());
    EXPECT_EQ(files.size(), 3U);
    const std::lock_guard lock(mutex);
    if (worker == 0) deltas.push_back(files);
  };
  const ThreadOutcome threads = train_in_threads(net.task(5), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  ASSERT_EQ(deltas.size(), 5U);
  fluid::Executor follower;
  follower.run(net.startup());
  const auto read = [&](size_t number) {
    fluid::io::read_table_delta(follower.scope(), kTables[0], deltas[number]);
  };
  EXPECT_THROW(read(1), UsageError) << "delta 1 is missing";
  for (size_t i = 0; i < deltas.size(); ++i) read(i);
  EXPECT_THROW(read(4), UsageError) << "it was read before";
  Rows followed;
  add_rows(kTables[0], *fluid::growing_table(follower.scope(), kTables[0]), followed);
  Rows trained = tables.rows();
  std::erase_if(trained, [](const auto& row) { return row.first.first != kTables[0]; });
  EXPECT_EQ(followed, trained);
  EXPECT_GT(tables.sum(&fluid::tables::TableStatistics::evicted), 10U);
}

// Files for inference have no states, and predict as the job does.
TEST_F(Models, ForInferenceComeFromServers) {
  const GrowingNet net({.minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::Adagrad({.learning_rate = 0.1}).minimize(loss);
  }});
  const fluid::Feed feed = GrowingNet::feed(1, 0, 1, 1);
  for (const auto mode : {fluid::ServerMode::kSync, fluid::ServerMode::kGeo}) {
    SCOPED_TRACE(fluid::to_string(mode));
    const std::filesystem::path model = folder_ / std::string(fluid::to_string(mode));
    ServerTables tables;
    const auto save = [&](WorkerRuntime& runtime, fluid::Executor& executor) {
      runtime.barrier_worker();
      fluid::Program main = net.main();
      fluid::io::save_inference_model(model, {"a", "b", "c", "label"},
                                      {fluid::Variable(main.global_block(), net.loss())}, executor,
                                      main, runtime);
      runtime.barrier_worker();
    };
    if (mode == fluid::ServerMode::kSync) {
      ThreadJob job{.workers = 2, .servers = 2};
      tables.watch(job);
      job.after_steps = [&](int, WorkerRuntime& runtime, fluid::Executor& own) {
        save(runtime, own);
      };
      for (const auto& error : train_in_threads(net.task(4), job).errors) ADD_FAILURE() << error;
    } else {
      AsyncThreadJob job;
      job.options.mode = mode;
      job.options.geo_update_frequency = 2;
      tables.watch(job);
      job.after_steps = [&](int, WorkerRuntime& runtime, fluid::Executor& own) {
        save(runtime, own);
      };
      for (const auto& error : train_async_in_threads(net.task(4), job).errors) {
        ADD_FAILURE() << error;
      }
    }
    fluid::Executor executor;
    const auto loaded = fluid::io::load_inference_model(model, executor);
    Rows values = tables.rows();
    for (auto& [key, floats] : values) floats.resize(key.first == kTables[0] ? 6 : 3);
    EXPECT_EQ(rows_in(executor.scope()), values);
    // As a program of the same values does.
    fluid::Executor twin;
    twin.run(net.startup());
    fluid::io::load_persistables(twin, model, loaded.program);
    const fluid::Program test = net.main().clone(true);
    EXPECT_EQ(executor.run(loaded.program, feed, {loaded.fetches[0]}).front().item<float>(),
              twin.run(test, feed, {net.loss()}).front().item<float>());
  }
}

}  // namespace
}  // namespace fleet::testing

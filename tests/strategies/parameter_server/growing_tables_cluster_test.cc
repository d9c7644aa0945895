// Growing tables on servers: jobs of threads with real programs over real sockets end with the rows
// and the losses of one machine.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "fluid/tables/lookup/shared_table.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/growing_net.h"
#include "tests/testing/thread_cluster.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
namespace rules = fluid::optimizer;

void expect_growing_bits(const GrowingNetOptions& options, ThreadJob job, int steps = 5) {
  const GrowingNet net(options);
  const int shards = job.shards == 0 ? job.workers : job.shards;
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers, ", shards, " shards"));
  const Outcome local = train_alone(net, shards, steps);
  ServerTables tables;
  tables.watch(job);
  const ThreadOutcome threads = train_in_threads(net.task(steps), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  ASSERT_TRUE(threads.errors.empty());
  EXPECT_EQ(tables.rows(), local.rows);
  EXPECT_FALSE(local.rows.empty());
  int weights = 0;
  for (const auto& [name, bytes] : threads.persistables) {
    ASSERT_TRUE(local.persistables.contains(name)) << name;
    EXPECT_TRUE(local.persistables.at(name) == bytes) << name << " on the servers differs";
    weights += name.starts_with("fc_") ? 1 : 0;
  }
  EXPECT_GE(weights, 2) << "weight and bias, at least";
  if (job.workers == 1) {
    EXPECT_EQ(threads.losses.front(), local.losses);
  }
}

TEST(GrowingTablesCluster, EndsWithTheBitsOfOneMachine) {
  for (const int servers : {1, 2, 3}) {
    expect_growing_bits({}, {.workers = 2, .servers = servers});
    expect_growing_bits({}, {.workers = 1, .servers = servers, .shards = 2});
  }
  expect_growing_bits({}, {.workers = 4, .servers = 2, .lanes = 2});
  expect_growing_bits({}, {.workers = 2, .servers = 2, .shards = 4});
}

TEST(GrowingTablesCluster, UpdatesWithEveryRuleForRows) {
  const std::vector<MinimizeTables> all = {
      [](const auto& loss) {
        rules::Momentum({.learning_rate = 0.1, .momentum = 0.9}).minimize(loss);
      },
      [](const auto& loss) { rules::Adam({.learning_rate = 0.01}).minimize(loss); },
      [](const auto& loss) { rules::Adagrad({.learning_rate = 0.1}).minimize(loss); },
      [](const auto& loss) { rules::DecayedAdagrad({.learning_rate = 0.1}).minimize(loss); },
      [](const auto& loss) { rules::Adadelta({.learning_rate = 0.5}).minimize(loss); },
      [](const auto& loss) { rules::Adamax({.learning_rate = 0.01}).minimize(loss); },
      [](const auto& loss) {
        rules::RMSProp({.learning_rate = 0.01, .momentum = 0.5, .centered = true}).minimize(loss);
      },
      [](const auto& loss) { rules::Ftrl({.learning_rate = 0.1}).minimize(loss); },
      [](const auto& loss) {
        rules::SGD({.learning_rate = 0.1, .grad_clip = fluid::clip::GradientClipByValue(0.01)})
            .minimize(loss);
      },
      [](const auto& loss) {
        rules::SGD({.learning_rate = layers::exponential_decay(0.1, 2, 0.5)}).minimize(loss);
      },
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_growing_bits({.minimize = all[i]}, {.workers = 2, .servers = 2}, 4);
  }
}

TEST(GrowingTablesCluster, AdmitsIdsAsOneMachineDoes) {
  expect_growing_bits({.entry = fluid::CountFilterEntry{3}}, {.workers = 2, .servers = 2}, 8);
  expect_growing_bits({.entry = fluid::ProbabilityEntry{0.5}}, {.workers = 2, .servers = 3});
}

TEST(GrowingTablesCluster, AdmitsIdsThatAreShownAsOneMachineDoes) {
  for (const double threshold : {0.0, 0.75, 2.0}) {
    const GrowingNetOptions options{.show_threshold = threshold};
    expect_growing_bits(options, {.workers = 2, .servers = 2}, 8);
    expect_growing_bits(options, {.workers = 1, .servers = 3, .lanes = 2}, 8);
    expect_growing_bits(options, {.workers = 4, .servers = 1}, 8);
  }
}

// Each lookup counts once, however often it is sent; scores would tell.
TEST(GrowingTablesCluster, ShowsCountOnceOverABadNetwork) {
  uint64_t cuts = 0;
  for (const uint64_t seed : {1U, 2U, 3U}) {
    ThreadJob job{.workers = 2, .servers = 2};
    job.faults = bad_network(seed);
    job.faults->cut = 0.05;
    const GrowingNet net({.show_threshold = 0.75});
    const Outcome local = train_alone(net, 2, 30);
    ServerTables tables;
    tables.watch(job);
    const ThreadOutcome threads = train_in_threads(net.task(30), job);
    for (const auto& error : threads.errors) ADD_FAILURE() << error;
    EXPECT_EQ(tables.rows(), local.rows) << "seed " << seed;
    cuts += threads.cuts;
  }
  EXPECT_GT(cuts, 10U);
}

TEST(GrowingTablesCluster, TrainsWhereServersHaveRoomForFewGradients) {
  for (const uint64_t window : {1U, 300U}) {
    expect_growing_bits({}, {.workers = 2, .servers = 2, .window_bytes = window});
  }
}

// A worker has shards of several nodes of the tree: gradients of the first ones wait for room while
// the others look rows up.
TEST(GrowingTablesCluster, LooksUpWhileGradientsWaitForRoom) {
  for (const uint64_t window : {1U, 300U}) {
    expect_growing_bits({}, {.workers = 3, .servers = 2, .shards = 8, .window_bytes = window});
  }
}

// Ids are sent one step ahead.
struct Ahead {
  uint64_t lookups = 0;  // whose rows were there
  uint64_t hits = 0;     // of the servers' tables
  uint64_t misses = 0;
};

Ahead train_ahead(const GrowingNetOptions& options, ThreadJob job) {
  using fluid::tables::TableStatistics;
  Ahead ahead;
  std::mutex mutex;
  ServerTables tables;
  tables.watch(job);
  job.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor&) {
    const std::lock_guard lock(mutex);
    ahead.lookups += runtime.lookups_ahead();
  };
  const GrowingNet net(options);
  const Outcome local = train_alone(net, job.workers, 6);
  const ThreadOutcome threads = train_in_threads(net.task(6), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  EXPECT_EQ(tables.rows(), local.rows);
  for (const auto& [name, bytes] : threads.persistables) {
    EXPECT_TRUE(local.persistables.at(name) == bytes) << name;
  }
  ahead.hits = tables.sum(&TableStatistics::hits);
  ahead.misses = tables.sum(&TableStatistics::misses);
  return ahead;
}

TEST(GrowingTablesCluster, SendsTheIdsOfTheNextStepAhead) {
  for (const uint32_t lanes : {1U, 2U}) {
    for (const fluid::SparseEntry& entry :
         {fluid::SparseEntry(), fluid::SparseEntry(fluid::CountFilterEntry{3})}) {
      ThreadJob job{.workers = 2, .servers = 2, .lanes = lanes};
      const Ahead plain = train_ahead({.entry = entry}, job);
      EXPECT_EQ(plain.lookups, 0U);
      job.next_feed = GrowingNet::feed;
      const Ahead ahead = train_ahead({.entry = entry}, job);
      EXPECT_EQ(ahead.lookups, 2U * 5);
      EXPECT_EQ(ahead.hits, plain.hits);
      EXPECT_EQ(ahead.misses, plain.misses);
    }
    ThreadJob shown{.workers = 2, .servers = 2, .lanes = lanes};
    shown.next_feed = GrowingNet::feed_with_shows;
    EXPECT_EQ(train_ahead({.show_threshold = 0.75}, shown).lookups, 2U * 5);
  }
}

// Another program trains the same rows between two steps: what was asked ahead is too old.
TEST(GrowingTablesCluster, AsksAgainWhereAnotherStepCameInBetween) {
  ThreadJob job{.workers = 2, .servers = 2};
  job.programs = [](const fluid::Program& trainer) {
    return std::vector<fluid::Program>{trainer, trainer};
  };
  // What the same program is fed with two steps later.
  job.next_feed = [](int step, int begin, int end, int parts) {
    return GrowingNet::feed(step + 1, begin, end, parts);
  };
  EXPECT_EQ(train_ahead({}, job).lookups, 0U);
}

// Somebody fed something else than what was told.
TEST(GrowingTablesCluster, AsksAgainWhereOtherIdsCome) {
  ThreadJob job{.workers = 2, .servers = 2};
  job.next_feed = [](int step, int begin, int end, int parts) {
    return GrowingNet::feed(step % 2 == 0 ? step : step + 1, begin, end, parts);
  };
  EXPECT_EQ(train_ahead({}, job).lookups, 2U * 2);
  job.next_feed = [](int, int, int, int) { return fluid::Feed(); };
  EXPECT_EQ(train_ahead({}, job).lookups, 0U);
}

// What servers have after a job whose rows travel as such numbers.
struct Narrow {
  Rows rows;
  std::vector<float> losses;
  uint64_t bytes = 0;  // through the servers' data lanes
};

Narrow train_narrow(fluid::DType dtype, int servers, int workers = 2) {
  const GrowingNet net({});
  ServerTables tables;
  ThreadJob job{.workers = workers, .servers = servers, .narrow_rows = dtype};
  tables.watch(job);
  const ThreadOutcome threads = train_in_threads(net.task(6), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  Narrow outcome{.rows = tables.rows(), .losses = threads.losses.front()};
  for (const auto& server : threads.servers) outcome.bytes += server.bytes_in + server.bytes_out;
  return outcome;
}

TEST(GrowingTablesCluster, RowsMayTravelAsNumbersOf16Bits) {
  const Narrow whole = train_narrow(fluid::DType::kFloat32, 2);
  for (const auto dtype : {fluid::DType::kFloat16, fluid::DType::kBFloat16}) {
    SCOPED_TRACE(fluid::dtype_name(dtype));
    const Narrow narrow = train_narrow(dtype, 2);
    EXPECT_LT(narrow.bytes, whole.bytes);
    EXPECT_TRUE(narrow.rows == train_narrow(dtype, 3).rows);
    EXPECT_FALSE(narrow.rows == whole.rows);
    ASSERT_EQ(narrow.rows.size(), whole.rows.size());
    const float error = dtype == fluid::DType::kFloat16 ? 2e-3F : 2e-2F;
    for (const auto& [key, floats] : whole.rows) {
      for (size_t i = 0; i < floats.size(); ++i) {
        EXPECT_NEAR(narrow.rows.at(key)[i], floats[i], error) << key.first << " " << key.second;
      }
    }
  }
}

TEST(GrowingTablesCluster, RowsTravelAsNumbersOf16BitsInTheBackground) {
  constexpr auto kDType = fluid::DType::kBFloat16;
  const GrowingNet net({});
  ServerTables tables;
  AsyncThreadJob job;
  job.workers = 1;
  job.narrow_rows = kDType;
  job.options.independent_recv = false;
  tables.watch(job);
  const AsyncThreadOutcome outcome = train_async_in_threads(net.task(6), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  const Narrow in_step = train_narrow(kDType, 2, 1);
  EXPECT_EQ(outcome.losses[0], in_step.losses);
  EXPECT_EQ(tables.rows(), in_step.rows);
}

// Rows that two steps before looked up are used again; nothing is trained, so they are the same.
TEST(GrowingTablesCluster, UsesRowsAgainInTheBackground) {
  const GrowingNet net({.minimize = [](const fluid::Variable& loss) {
    rules::SGD({.learning_rate = 0.0}).minimize(loss);
  }});
  using fluid::tables::TableStatistics;
  std::vector<uint64_t> asked;
  std::vector<std::vector<float>> losses;
  for (const uint32_t steps : {0U, 1U, 2U}) {
    ServerTables tables;
    AsyncThreadJob job;
    job.workers = 1;
    job.hot_row_steps = steps;
    job.options.independent_recv = false;
    tables.watch(job);
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(6), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    losses.push_back(outcome.losses[0]);
    asked.push_back(tables.sum(&TableStatistics::hits) + tables.sum(&TableStatistics::misses));
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);
  EXPECT_LT(asked[1], asked[0]);
  EXPECT_LT(asked[2], asked[1]);
}

TEST(GrowingTablesCluster, ManyWorkersLearnWithRowsThatTheyUseAgain) {
  const GrowingNet net({});
  const Outcome local = train_alone(net, 2, 10);
  ServerTables tables;
  AsyncThreadJob job;
  job.hot_row_steps = 2;
  job.options.mode = fluid::ServerMode::kHalfAsync;
  job.options.trainer_threads = 2;
  tables.watch(job);
  const AsyncThreadOutcome outcome = train_async_in_threads(net.task(10), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  const Rows rows = tables.rows();
  ASSERT_EQ(rows.size(), local.rows.size());
  for (const auto& [key, initial] : initial_rows(net, rows)) {
    EXPECT_NE(rows.at(key), initial) << key.first << " " << key.second;
  }
}

TEST(GrowingTablesCluster, RowsAreNotUsedAgainWhereStalenessHasABound) {
  strategies::ParameterServerConfig config;
  config.servers = {{"127.0.0.1", 1}};
  config.hot_row_steps = 2;
  strategies::AsyncOptions options;
  options.staleness_bound = 1;
  try {
    const strategies::WorkerRuntime runtime(config, options, transport::TransportChoice::kTcp,
                                            fluid::Program());
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("FLEET_HOT_ROW_STEPS"), std::string::npos);
  }
}

void expect_growing_bits_in_background(const GrowingNetOptions& options, fluid::ServerMode mode) {
  SCOPED_TRACE(fluid::to_string(mode));
  const GrowingNet net(options);
  const Outcome local = train_alone(net, 1, 6);
  ServerTables tables;
  AsyncThreadJob job;
  job.workers = 1;
  job.options.mode = mode;
  job.options.independent_recv = false;
  tables.watch(job);
  const AsyncThreadOutcome outcome = train_async_in_threads(net.task(6), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_EQ(outcome.losses[0], local.losses);
  EXPECT_EQ(tables.rows(), local.rows);
}

TEST(GrowingTablesCluster, OneWorkerInTheBackgroundHasTheBitsOfOneMachine) {
  const MinimizeTables adam = [](const auto& loss) {
    rules::Adam({.learning_rate = 0.01}).minimize(loss);
  };
  for (const auto mode : {fluid::ServerMode::kAsync, fluid::ServerMode::kHalfAsync}) {
    expect_growing_bits_in_background({}, mode);
    expect_growing_bits_in_background({.minimize = adam}, mode);
  }
}

TEST(GrowingTablesCluster, ManyWorkersInTheBackgroundTrainTheRowsOfTheirIds) {
  const GrowingNet net({});
  const Outcome local = train_alone(net, 2, 10);
  for (const auto mode : {fluid::ServerMode::kAsync, fluid::ServerMode::kHalfAsync}) {
    SCOPED_TRACE(fluid::to_string(mode));
    ServerTables tables;
    AsyncThreadJob job;
    job.options.mode = mode;
    tables.watch(job);
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(10), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    const Rows rows = tables.rows();
    ASSERT_EQ(rows.size(), local.rows.size());
    size_t trained = 0;
    const Rows initial = initial_rows(net, rows);
    for (const auto& [key, floats] : local.rows) {
      ASSERT_TRUE(rows.contains(key)) << key.second;
      trained += rows.at(key) == initial.at(key) ? 0 : 1;
    }
    EXPECT_EQ(trained, local.rows.size());
  }
}

TEST(GrowingTablesCluster, TestProgramsMakeNoRows) {
  const GrowingNet net({});
  ServerTables tables;
  uint64_t before = 0;
  int tests = 0;
  ThreadJob job{.workers = 1, .servers = 2};
  tables.watch(job);
  job.programs = [](const fluid::Program& trainer) {
    return std::vector<fluid::Program>{trainer, trainer.clone(true)};
  };
  job.after_step = [&](int, const fluid::Program& main, fluid::Executor&) {
    const uint64_t now = tables.count();
    const auto& ops = main.global_block().ops();
    const bool test =
        std::none_of(ops.begin(), ops.end(), [](const auto& op) { return op->type == "send"; });
    if (test) {
      EXPECT_EQ(now, before);
      ++tests;
    }
    before = now;
  };
  const ThreadOutcome threads = train_in_threads(net.task(4), job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  EXPECT_GT(tables.count(), 0U);
  EXPECT_EQ(tests, 2);
}

TEST(GrowingTablesCluster, AsksAllServersOnceAStep) {
  const GrowingNet net({});
  transpiler::DistributeTranspiler transpiler;
  transpiler.transpile({.trainer_id = 0,
                        .program = &net.main(),
                        .pservers = "127.0.0.1:1,127.0.0.1:2",
                        .trainers = 2,
                        .startup_program = &net.startup()});
  const fluid::Program& trainer = transpiler.get_trainer_program();
  int lookups = 0;
  for (const auto& op : trainer.global_block().ops()) {
    EXPECT_NE(op->type, "lookup_growing_table");
    lookups += op->type == "lookup_remote_growing_tables" ? 1 : 0;
  }
  EXPECT_EQ(lookups, 1);
}

TEST(GrowingTablesCluster, ServersHaveBucketsThatFollowEachOther) {
  for (const size_t servers : {1U, 2U, 3U, 7U, 4096U}) {
    std::vector<int> buckets(servers);
    size_t last = 0;
    for (uint32_t bucket = 0; bucket < fluid::tables::kBuckets; ++bucket) {
      const size_t server = fluid::server_of_bucket(bucket, servers);
      EXPECT_GE(server, last);
      last = server;
      ++buckets.at(server);
    }
    const auto [least, most] = std::minmax_element(buckets.begin(), buckets.end());
    EXPECT_LE(*most - *least, 1);
  }
}

void expect_refused(const GrowingNetOptions& options,
                    const transpiler::DistributeTranspilerConfig& config, const std::string& text) {
  try {
    const GrowingNet net(options);
    transpiler::DistributeTranspiler transpiler(config);
    transpiler.transpile({.trainer_id = 0,
                          .program = &net.main(),
                          .pservers = "127.0.0.1:1,127.0.0.1:2",
                          .trainers = 2,
                          .startup_program = &net.startup()});
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotSupported);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(GrowingTablesCluster, RefusesWhatServersCannotDo) {
  const MinimizeTables clipped = [](const fluid::Variable& loss) {
    rules::SGD({.learning_rate = 0.1, .grad_clip = fluid::clip::GradientClipByNorm(1.0)})
        .minimize(loss);
  };
  expect_refused({.minimize = clipped}, {}, "norm");
  transpiler::DistributeTranspilerConfig geo;
  geo.sync_mode = false;
  geo.geo_sgd_mode = true;
  expect_refused({.entry = fluid::CountFilterEntry{3}}, geo, "CountFilterEntry");
  expect_refused({.fields = {.count = true}}, geo, "fields.count");
  expect_refused({.show_threshold = 1}, geo, "ShowClickEntry");
  transpiler::DistributeTranspilerConfig compensated;
  compensated.sync_mode = false;
  compensated.enable_dc_asgd = true;
  expect_refused({}, compensated, "delays");
}

}  // namespace
}  // namespace fleet::testing

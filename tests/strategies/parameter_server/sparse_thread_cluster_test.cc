// Sparse gradients between threads with real programs over real sockets: the bits of one machine.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/optimizer/averages.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

void expect_local_bits(const SparseNetOptions& options, const ThreadJob& job, int steps = 6) {
  const SparseNet net(options);
  const TrainingTask task = net.task(steps);
  const int shards = job.shards == 0 ? job.workers : job.shards;
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers, ", shards, " shards"));
  const LocalOutcome local = train_locally(task, shards);
  const ThreadOutcome threads = train_in_threads(task, job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  ASSERT_TRUE(threads.errors.empty());
  for (const auto& [name, bytes] : local.parameters) {
    ASSERT_TRUE(threads.persistables.contains(name)) << name;
  }
  for (const auto& [name, bytes] : threads.persistables) {
    ASSERT_TRUE(local.persistables.contains(name)) << name;
    EXPECT_TRUE(local.persistables.at(name) == bytes) << name << " on the servers differs";
  }
  if (job.workers > 1) return;
  EXPECT_EQ(threads.losses.front(), local.losses);
}

TEST(SparseThreadCluster, EndsWithTheBitsOfOneMachine) {
  expect_local_bits({}, {.workers = 2, .servers = 2});
  expect_local_bits({}, {.workers = 4, .servers = 1});
  expect_local_bits({}, {.workers = 1, .servers = 3});
}

TEST(SparseThreadCluster, EndsWithTheSameBitsForEveryNumberOfWorkers) {
  for (const int workers : {1, 2, 4}) {
    expect_local_bits({}, {.workers = workers, .servers = 2, .shards = 4});
  }
  expect_local_bits({}, {.workers = 2, .servers = 2, .shards = 3});
}

// Rows of tables with heights, those that are asked for and those of gradients.
TEST(SparseThreadCluster, SendsRowsOf16Bits) {
  for (const bool distributed : {false, true}) {
    SCOPED_TRACE(distributed);
    const SparseNet net({.is_distributed = distributed});
    const TrainingTask task = net.task(6);
    const ThreadOutcome whole = train_in_threads(task, {.workers = 2, .servers = 2});
    ThreadJob job{.workers = 2, .servers = 2, .narrow_rows = fluid::DType::kBFloat16};
    const ThreadOutcome narrow = train_in_threads(task, job);
    job.servers = 3;
    job.window_bytes = 400;
    const ThreadOutcome three = train_in_threads(task, job);
    for (const auto* outcome : {&whole, &narrow, &three}) {
      for (const auto& error : outcome->errors) ADD_FAILURE() << error;
    }
    EXPECT_TRUE(narrow.persistables == three.persistables);
    EXPECT_FALSE(narrow.persistables == whole.persistables);
    for (size_t step = 0; step < whole.losses[0].size(); ++step) {
      EXPECT_NEAR(narrow.losses[0][step], whole.losses[0][step], 0.02) << "step " << step;
    }
  }
}

// Workers hold back the sparse gradients that their servers have no room for.
TEST(SparseThreadCluster, TrainsWhereServersHaveRoomForFewGradients) {
  for (const uint64_t window : {1U, 400U, 4000U}) {
    SCOPED_TRACE(window);
    ThreadJob job{.workers = 4, .servers = 2, .window_bytes = window};
    expect_local_bits({.kind = RowKind::kTwoTables}, job);
    job.workers = 3;
    job.shards = 8;
    job.lanes = 2;
    expect_local_bits({.kind = RowKind::kTwoTables}, job);
    job.workers = 2;
    job.shards = 0;
    job.faults = bad_network(window);
    expect_local_bits({}, job);
  }
}

TEST(SparseThreadCluster, TrainsEveryOpWithSparseGradients) {
  for (const RowKind kind : {RowKind::kLookupV2, RowKind::kTwoLookups, RowKind::kTwoVersions,
                             RowKind::kTwoTables, RowKind::kNce, RowKind::kHsigmoid}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_local_bits({.kind = kind}, {.workers = 2, .servers = 2});
    expect_local_bits({.kind = kind}, {.workers = 1, .servers = 2, .shards = 2});
    expect_local_bits({.kind = kind}, {.workers = 1, .servers = 3, .shards = 3});
  }
}

TEST(SparseThreadCluster, LeavesTheRowOfThePaddingAlone) {
  expect_local_bits({.padding = 3}, {.workers = 2, .servers = 2});
}

TEST(SparseThreadCluster, UpdatesWithEveryRuleForRows) {
  using fluid::Variable;
  namespace rules = fluid::optimizer;
  const std::vector<std::function<void(const Variable&)>> all = {
      [](const Variable& loss) {
        rules::Momentum({.learning_rate = 0.1, .momentum = 0.9}).minimize(loss);
      },
      [](const Variable& loss) { rules::Adam({.learning_rate = 0.01}).minimize(loss); },
      [](const Variable& loss) {
        rules::Adam({.learning_rate = 0.01, .lazy_mode = true}).minimize(loss);
      },
      [](const Variable& loss) { rules::Adagrad({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) { rules::DecayedAdagrad({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) { rules::Adadelta({.learning_rate = 0.5}).minimize(loss); },
      [](const Variable& loss) { rules::RMSProp({.learning_rate = 0.01}).minimize(loss); },
      [](const Variable& loss) {
        rules::RMSProp({.learning_rate = 0.01, .momentum = 0.5, .centered = true}).minimize(loss);
      },
      [](const Variable& loss) { rules::Ftrl({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) {
        rules::SGD({.learning_rate = 0.1, .regularization = fluid::regularizer::L2Decay(0.01)})
            .minimize(loss);
      },
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_local_bits({.minimize = all[i]}, {.workers = 2, .servers = 3}, 4);
  }
}

TEST(SparseThreadCluster, TrainsAndDecaysEveryOpWithRowsOfThreeShards) {
  const auto decayed = [](const fluid::Variable& loss) {
    fluid::optimizer::SGD(
        {.learning_rate = 0.1, .regularization = fluid::regularizer::L2Decay(0.01)})
        .minimize(loss);
  };
  for (const RowKind kind : {RowKind::kTwoLookups, RowKind::kNce, RowKind::kHsigmoid}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_local_bits({.kind = kind}, {.workers = 1, .servers = 1, .shards = 3}, 1);
    expect_local_bits({.kind = kind, .minimize = decayed}, {.workers = 3, .servers = 2}, 4);
  }
}

// Servers exchange numbers: with Unix sockets each knows the others' names from the first.
ThreadJob exchanging(int workers, int servers, int shards) {
  ThreadJob job{.workers = workers, .servers = servers, .shards = shards};
  job.transport = transport::TransportChoice::kUnix;
  return job;
}

using Minimize = std::function<void(const fluid::Variable&)>;

// Updates that need whole gradients or parameters.
std::vector<Minimize> rules_of_wholes() {
  using fluid::Variable;
  namespace rules = fluid::optimizer;
  namespace clip = fluid::clip;
  return {
      [](const Variable& loss) {
        rules::SGD({.learning_rate = 0.1, .grad_clip = clip::GradientClipByValue(0.01)})
            .minimize(loss);
      },
      [](const Variable& loss) {
        rules::SGD({.learning_rate = 0.1, .grad_clip = clip::GradientClipByNorm(0.05)})
            .minimize(loss);
      },
      [](const Variable& loss) { rules::LarsMomentum({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) { rules::Lamb({.learning_rate = 0.01}).minimize(loss); },
      [](const Variable& loss) { rules::Adamax({.learning_rate = 0.01}).minimize(loss); },
  };
}

void clip_by_global_norm(const fluid::Variable& loss) {
  fluid::optimizer::Adam(
      {.learning_rate = 0.01, .grad_clip = fluid::clip::GradientClipByGlobalNorm(0.05)})
      .minimize(loss);
}

// Of tables that are cut.
TEST(SparseThreadCluster, UpdatesByNormsOfWholeTables) {
  const auto all = rules_of_wholes();
  for (const RowKind kind : {RowKind::kLookup, RowKind::kTwoLookups, RowKind::kHsigmoid}) {
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(str_cat(static_cast<int>(kind), ", rule ", i));
      expect_local_bits({.kind = kind, .minimize = all[i]}, exchanging(2, 3, 2), 4);
      expect_local_bits({.kind = kind, .minimize = all[i]}, exchanging(1, 2, 2), 4);
    }
  }
}

TEST(SparseThreadCluster, ClipsByTheGlobalNormOfAllGradients) {
  SparseNetOptions options{.minimize = clip_by_global_norm};
  for (const RowKind kind : {RowKind::kLookup, RowKind::kTwoLookups, RowKind::kHsigmoid}) {
    options.kind = kind;
    SCOPED_TRACE(static_cast<int>(kind));
    for (const bool cut : {true, false}) {
      SCOPED_TRACE(cut ? "cut" : "whole");
      ThreadJob job = exchanging(2, 3, 2);
      job.config.slice_var_up = cut;
      expect_local_bits(options, job, 4);
    }
    expect_local_bits(options, exchanging(1, 1, 2), 4);
  }
}

// The rows of such a table, 2000 or 2001, are in turns on the servers.
TEST(SparseThreadCluster, UpdatesDistributedTablesByNormsOfTheWhole) {
  auto all = rules_of_wholes();
  all.emplace_back(clip_by_global_norm);
  all.emplace_back([](const fluid::Variable& loss) {
    fluid::optimizer::Lamb({.learning_rate = 0.01,
                            .regularization = fluid::regularizer::L2Decay(0.01),
                            .grad_clip = fluid::clip::GradientClipByGlobalNorm(0.05)})
        .minimize(loss);
  });
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(str_cat("rule ", i));
    SparseNetOptions options{
        .kind = RowKind::kTwoTables, .minimize = all[i], .is_distributed = true};
    expect_local_bits(options, exchanging(2, 3, 2), 4);
    expect_local_bits(options, exchanging(1, 1, 2), 4);
    options.kind = RowKind::kTwoLookups;
    expect_local_bits(options, exchanging(1, 2, 1), 4);
  }
}

// What clips on the trainers takes the norm of each one's own gradient.
TEST(SparseThreadCluster, NotedClipsOfDistributedTablesAreThoseOfSparseOnes) {
  const Minimize minimize = [](const fluid::Variable& loss) {
    fluid::clip::set_gradient_clip(fluid::clip::GradientClipByGlobalNorm(0.05),
                                   loss.block().program());
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  };
  const ThreadJob job{.workers = 2, .servers = 3};
  const auto train = [&](bool distributed) {
    const SparseNet net(
        {.kind = RowKind::kTwoTables, .minimize = minimize, .is_distributed = distributed});
    ThreadOutcome outcome = train_in_threads(net.task(4), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    return outcome;
  };
  const ThreadOutcome sparse = train(false);
  ASSERT_FALSE(sparse.persistables.empty());
  EXPECT_TRUE(train(true).persistables == sparse.persistables);
}

TEST(SparseThreadCluster, LooksAheadWithDistributedTables) {
  const Minimize minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::SGD sgd({.learning_rate = 0.1});
    fluid::optimizer::Lookahead(sgd, {.alpha = 0.5, .k = 2}).minimize(loss);
  };
  expect_local_bits({.kind = RowKind::kTwoTables, .minimize = minimize, .is_distributed = true},
                    {.workers = 2, .servers = 3}, 5);
}

TEST(SparseThreadCluster, KeepsDistributedTablesOnServersOnly) {
  for (const RowKind kind :
       {RowKind::kLookup, RowKind::kLookupV2, RowKind::kTwoLookups, RowKind::kTwoTables}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const SparseNetOptions options{.kind = kind, .is_distributed = true};
    expect_local_bits(options, {.workers = 2, .servers = 3});
    expect_local_bits(options, {.workers = 1, .servers = 2, .shards = 2});
    expect_local_bits(options, {.workers = 1, .servers = 1});
    expect_local_bits(options, {.workers = 1, .servers = 3});
  }
  SparseNetOptions options{.padding = 3, .is_distributed = true};
  expect_local_bits(options, {.workers = 2, .servers = 2});
  options.minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::Adam({.learning_rate = 0.01}).minimize(loss);
  };
  expect_local_bits(options, {.workers = 2, .servers = 3});
}

TEST(SparseThreadCluster, UpdatesDistributedTablesWithEveryRuleForRows) {
  using fluid::Variable;
  namespace rules = fluid::optimizer;
  const std::vector<std::function<void(const Variable&)>> all = {
      [](const Variable& loss) {
        rules::Momentum({.learning_rate = 0.1, .momentum = 0.9}).minimize(loss);
      },
      [](const Variable& loss) {
        rules::Adam({.learning_rate = 0.01, .lazy_mode = true}).minimize(loss);
      },
      [](const Variable& loss) { rules::Adagrad({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) { rules::RMSProp({.learning_rate = 0.01}).minimize(loss); },
      [](const Variable& loss) { rules::Ftrl({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) { rules::Adamax({.learning_rate = 0.01}).minimize(loss); },
      [](const Variable& loss) {
        rules::SGD({.learning_rate = 0.1, .regularization = fluid::regularizer::L2Decay(0.01)})
            .minimize(loss);
      },
      [](const Variable& loss) {
        rules::SGD({.learning_rate = 0.1,
                    .regularization = fluid::regularizer::L1Decay(0.01),
                    .grad_clip = fluid::clip::GradientClipByValue(0.01)})
            .minimize(loss);
      },
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_local_bits({.minimize = all[i], .is_distributed = true}, {.workers = 2, .servers = 3},
                      4);
  }
}

TEST(SparseThreadCluster, LooksADistributedTableUpWithSeveralPaddings) {
  for (const bool distributed : {true, false}) {
    SCOPED_TRACE(distributed);
    const SparseNetOptions options{
        .kind = RowKind::kTwoPaddings, .padding = 3, .is_distributed = distributed};
    expect_local_bits(options, {.workers = 2, .servers = 3});
  }
}

TEST(SparseThreadCluster, GivesInitialValuesOfDistributedTablesToTheServers) {
  const SparseNet net({.is_distributed = true});
  const std::string table = net.main().global_block().parameters().front()->name;
  ThreadJob job{.workers = 1, .servers = 3};
  job.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor&) {
    fluid::Scope scope;
    EXPECT_TRUE(runtime.pull({table}, scope).empty());
    fluid::Tensor value = scope.tensor(table).clone();
    for (int64_t i = 0; i < value.numel(); ++i) value.data<float>()[i] = static_cast<float>(i);
    EXPECT_TRUE(runtime.assign(table, value));
    EXPECT_TRUE(runtime.pull({table}, scope).empty());
    const fluid::Tensor& got = scope.tensor(table);
    EXPECT_TRUE(std::equal(got.raw(), got.raw() + got.bytes(), value.raw()));
  };
  const ThreadOutcome outcome = train_in_threads(net.task(0), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
}

// What the servers' data lanes send in a job of so many steps.
uint64_t bytes_sent(const SparseNet& net, const ThreadJob& job, int steps) {
  const ThreadOutcome outcome = train_in_threads(net.task(steps), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  uint64_t bytes = 0;
  for (const auto& server : outcome.servers) bytes += server.bytes_out;
  return bytes;
}

// Of a weight with classes, a step takes the rows that the loss looks at and no others.
TEST(SparseThreadCluster, FetchesOnlyTheRowsThatALossLooksAt) {
  constexpr int kSteps = 4;
  constexpr uint64_t kWorkers = 2;
  constexpr uint64_t kSamples = 24;       // rows of a batch
  constexpr uint64_t kRowsOfSample = 11;  // of a tree of 1500 classes; nce: 1 and 5
  constexpr uint64_t kRowBytes = 12 * sizeof(float);
  for (const RowKind kind : {RowKind::kNce, RowKind::kHsigmoid}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const SparseNet net({.kind = kind});
    uint64_t dense = 0;
    for (const auto* param : net.main().global_block().parameters()) {
      const bool table = net.main().global_block().var(param->name + "@GRAD").kind ==
                         fluid::VarKind::kSelectedRows;
      if (!table) dense += static_cast<uint64_t>(param->shape.numel()) * sizeof(float);
    }
    const ThreadJob job{.workers = kWorkers, .servers = 2};
    const uint64_t bytes = bytes_sent(net, job, 2 + kSteps) - bytes_sent(net, job, 2);
    EXPECT_GT(bytes, kSteps * kWorkers * dense);
    EXPECT_LE(bytes, kSteps * (kWorkers * dense + kSamples * kRowsOfSample * kRowBytes));
  }
}

TEST(SparseThreadCluster, ReceivesWholeTreesOnRequest) {
  ThreadJob job;
  job.config.prefetch_trees = false;
  expect_local_bits({.kind = RowKind::kHsigmoid}, job);
}

TEST(SparseThreadCluster, RunsTheRuntimeSplitForm) {
  ThreadJob job;
  job.config.runtime_split_send_recv = true;
  job.config.sync_mode = false;
  job.config.completely_not_async = true;
  expect_local_bits({}, job);
}

TEST(SparseThreadCluster, ServesEachLaneInAThreadOfItsOwn) {
  expect_local_bits({}, {.lanes = 3});
  // Servers exchange norms between the stages of an update.
  ThreadJob job = exchanging(2, 3, 2);
  job.lanes = 3;
  expect_local_bits({.minimize = clip_by_global_norm}, job, 8);
}

}  // namespace
}  // namespace fleet::testing

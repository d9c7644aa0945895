// Deep gradient compression: the rule against plain loops, local runs against ranks.
#include <cmath>
#include <gmock/gmock.h>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "fluid/executor/compiled_program.h"
#include "fluid/ops/distributed/rank_sums.h"
#include "fluid/ops/optimize/dgc.h"
#include "strategies/collective/collective_runtime.h"
#include "tests/strategies/collective/small_net.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using fluid::optimizer::DGCMomentum;
using fluid::optimizer::DGCMomentumOptions;
using small_net::batch;
using small_net::kBatch;
using small_net::Net;
using small_net::Parameters;
using ::testing::Each;
using ::testing::HasSubstr;

namespace layers = fluid::layers;

constexpr int64_t kSize = 100;

// The gradient of parameter w by one row of x is that row.
void build_linear(Net& net, const DGCMomentumOptions& options) {
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  const auto x = layers::data("x", {kSize}, fluid::DType::kFloat32);
  const auto w = layers::create_parameter(
      {kSize}, fluid::DType::kFloat32,
      {.attr = {.name = "w", .initializer = fluid::initializer::Constant{.value = 0.25}}});
  const auto product = layers::elementwise_mul(x, w);
  const auto cost = layers::mean(layers::reduce_sum(product, {.dim = {1}}));
  DGCMomentum(options).minimize(cost);
  net.cost = cost.name();
}

std::vector<float> gradient(int step, int shard) {
  std::vector<float> row(kSize);
  const RandomKey key{static_cast<uint32_t>(step), static_cast<uint32_t>(shard)};
  for (size_t i = 0; i < row.size(); ++i) row[i] = uniform_float(key, i) - 0.4F;
  row[3] = row[40] = row[41] = 0.9F;  // equal magnitudes
  row[70] = -0.9F;
  return row;
}

fluid::Feed gradients(int step, int begin, int end) {
  std::vector<float> rows;
  for (int shard = begin; shard < end; ++shard) {
    const auto row = gradient(step, shard);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return {{"x", fluid::Tensor::from(rows, {end - begin, kSize})}};
}

// The rule as dgc.h has it, in plain loops.
class Reference {
 public:
  Reference(const DGCMomentumOptions& options, int shards)
      : options_(options), shards_(shards), u_(static_cast<size_t>(shards)), v_(u_) {}

  std::vector<float> train(int steps) {
    for (int step = 0; step < steps; ++step) {
      std::vector<std::vector<float>> sent;
      sent.reserve(static_cast<size_t>(shards_));
      for (int shard = 0; shard < shards_; ++shard) sent.push_back(send(step, shard));
      update(step, sent);
    }
    return {w_.begin(), w_.end()};
  }

 private:
  std::vector<double> local(int step, int shard) const {
    const auto raw = gradient(step, shard);
    std::vector<double> g(raw.begin(), raw.end());
    if (options_.grad_clip) {
      const double limit =
          options_.grad_clip->values.at("clip_norm") * std::sqrt(options_.num_trainers);
      const double norm = std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0));
      if (norm > limit) {
        for (double& value : g) value *= limit / norm;
      }
    }
    for (size_t i = 0; options_.regularization && i < g.size(); ++i) {
      const double coefficient = options_.regularization->values.at("regularization_coeff");
      const bool squares = options_.regularization->kind == "L2Decay";
      g[i] += coefficient * (squares ? w_[i] : static_cast<double>((w_[i] > 0) - (w_[i] < 0)));
    }
    return g;
  }

  std::vector<float> send(int step, int shard) {
    const auto g = local(step, shard);
    if (step < options_.rampup_begin_step) return {g.begin(), g.end()};
    auto& u = u_[static_cast<size_t>(shard)];
    auto& v = v_[static_cast<size_t>(shard)];
    if (v.empty()) {
      u = velocity_;
      v.assign(kSize, 0);
    }
    const auto raw = gradient(step, shard);
    for (size_t i = 0; i < g.size(); ++i) {
      u[i] = options_.use_nesterov ? options_.momentum * (u[i] + g[i])
                                   : options_.momentum * u[i] + g[i];
      v[i] += u[i];
      if (options_.use_nesterov) v[i] += options_.paddle_form ? raw[i] : g[i];
    }
    std::vector<size_t> order(kSize);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::abs(static_cast<float>(v[a])) > std::abs(static_cast<float>(v[b]));
    });
    const auto part =
        static_cast<size_t>((step - options_.rampup_begin_step) *
                            static_cast<int64_t>(options_.sparsity.size()) / options_.rampup_step);
    const double sparsity = options_.sparsity[std::min(part, options_.sparsity.size() - 1)];
    order.resize(static_cast<size_t>(std::max(1L, std::lround(kSize * (1 - sparsity)))));
    std::vector<float> sent(kSize, 0);
    for (const size_t i : order) {
      sent[i] = static_cast<float>(v[i]);
      u[i] = v[i] = 0;
    }
    return sent;
  }

  void update(int step, const std::vector<std::vector<float>>& sent) {
    for (size_t i = 0; i < w_.size(); ++i) {
      double mean = 0;
      for (const auto& shard : sent) mean += shard[i] / static_cast<double>(shards_);
      double move = mean;
      if (step < options_.rampup_begin_step) {
        velocity_[i] = options_.momentum * velocity_[i] + mean;
        move = options_.use_nesterov ? mean + options_.momentum * velocity_[i] : velocity_[i];
      }
      w_[i] -= options_.learning_rate.value() * move;
    }
  }

  DGCMomentumOptions options_;
  int shards_;
  std::vector<double> w_ = std::vector<double>(kSize, 0.25);
  std::vector<double> velocity_ = std::vector<double>(kSize, 0.0);
  std::vector<std::vector<double>> u_;
  std::vector<std::vector<double>> v_;
};

Parameters train_linear(const DGCMomentumOptions& options, int shards, int steps) {
  Net net;
  build_linear(net, options);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
  exe.run(net.startup);
  for (int step = 0; step < steps; ++step) exe.run(net.main, gradients(step, 0, shards));
  return small_net::parameters_of(exe.scope(), net);
}

DGCMomentumOptions small(DGCMomentumOptions options) {
  options.learning_rate = 0.1;
  options.min_numel = 10;
  return options;
}

std::vector<std::pair<std::string, DGCMomentumOptions>> many_options() {
  const auto l2 = fluid::regularizer::L2Decay(0.05);
  const auto l1 = fluid::regularizer::L1Decay(0.05);
  const auto clip = fluid::clip::GradientClipByNorm(1.0);
  return {
      {"plain", small({.sparsity = {0.95}})},
      {"many elements", small({.sparsity = {0.75}})},
      {"all elements", small({.sparsity = {0.0}})},
      {"one element", small({.sparsity = {0.9999}})},
      {"after momentum", small({.rampup_begin_step = 3, .sparsity = {0.95}})},
      {"ramp", small({.rampup_begin_step = 2, .rampup_step = 6, .sparsity = {0.5, 0.9, 0.97}})},
      {"nesterov", small({.sparsity = {0.9}, .use_nesterov = true})},
      {"nesterov after momentum",
       small({.rampup_begin_step = 2, .sparsity = {0.9}, .use_nesterov = true})},
      {"decay", small({.rampup_begin_step = 1, .sparsity = {0.9}, .regularization = l2})},
      {"sign decay", small({.sparsity = {0.9}, .regularization = l1})},
      {"clip",
       small({.rampup_begin_step = 1, .sparsity = {0.9}, .grad_clip = clip, .num_trainers = 4})},
      {"Paddle's nesterov",
       small(
           {.sparsity = {0.9}, .use_nesterov = true, .regularization = l2, .paddle_form = true})}};
}

TEST(DgcTrainingTest, StepsFollowTheRule) {
  for (const auto& [name, options] : many_options()) {
    for (const int shards : {1, 2, 4}) {
      const auto expected = Reference(options, shards).train(10);
      const auto found = train_linear(options, shards, 10).at("w");
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], 2e-5) << name << ", " << shards << " shards, at " << i;
      }
    }
  }
}

TEST(DgcTrainingTest, WhatIsSentIsCountedByTheSchedule) {
  const fluid::DgcAttrs attrs{
      .sparsity = {0.75, 0.9375, 0.999}, .rampup_begin_step = 5, .rampup_step = 6};
  EXPECT_EQ(fluid::dgc_sent(attrs, 4, 1000).elements, 1000);
  EXPECT_EQ(fluid::dgc_sent(attrs, 5, 1000).elements, 250);
  EXPECT_FALSE(fluid::dgc_sent(attrs, 6, 1000).as_rows);
  EXPECT_EQ(fluid::dgc_sent(attrs, 7, 1000).elements, 63);
  EXPECT_TRUE(fluid::dgc_sent(attrs, 7, 1000).as_rows);
  EXPECT_EQ(fluid::dgc_sent(attrs, 9, 1000).elements, 1);
  EXPECT_EQ(fluid::dgc_sent(attrs, 1000000, 1000).elements, 1);
  EXPECT_EQ(fluid::dgc_sent(attrs, 100, 3).elements, 1);
  EXPECT_EQ(fluid::dgc_sent(attrs, 100, 0).elements, 0);
}

// Both weights of the net are compressed, its biases are not.
Net build_net(const DGCMomentumOptions& options, bool with_rows = false) {
  Net net{.with_rows = with_rows};
  small_net::build(net, DGCMomentum(options));
  return net;
}

DGCMomentumOptions of_net(DGCMomentumOptions options) {
  options.learning_rate = 0.05;
  options.min_numel = 30;
  return options;
}

constexpr int kSteps = 8;

Parameters train_locally(const DGCMomentumOptions& options, int shards, int threads = 1,
                         bool with_rows = false) {
  const Net net = build_net(options, with_rows);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards, .threads = threads});
  exe.run(net.startup);
  for (int step = 0; step < kSteps; ++step) exe.run(net.main, batch(step, 0, kBatch));
  return small_net::parameters_of(exe.scope(), net);
}

struct Job {
  DGCMomentumOptions options;
  int workers = 2;
  int shards = 2;
  bool with_rows = false;
  std::vector<int> steps = {};         // by rank; empty: kSteps
  std::vector<int64_t> counters = {};  // by rank, that training begins with
};

Parameters run_rank(const Job& job, int rank, transport::InProcessGroup& group) {
  const Net net = build_net(job.options, job.with_rows);
  const role_maker::ClusterSpec cluster = small_net::cluster_of(rank, job.workers);
  auto programs = small_net::transpiled(net, cluster, job.shards);
  const auto runtime = std::make_shared<CollectiveRuntime>(
      cluster, [&] { return group.member(rank); },
      CollectiveRuntimeOptions{.logical_shards = job.shards});
  runtime->expect(programs.main);
  programs.main.set_runtime(runtime);
  programs.startup.set_runtime(runtime);
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(programs.startup);
  if (!job.counters.empty()) {
    *exe.scope().tensor(fluid::kDgcCounter).data<int64_t>() =
        job.counters[static_cast<size_t>(rank)];
  }
  const auto own = owned_shards(rank, job.workers, job.shards);
  const int64_t rows = kBatch / job.shards;
  const int steps = job.steps.empty() ? kSteps : job.steps[static_cast<size_t>(rank)];
  for (int step = 0; step < steps; ++step) {
    exe.run(programs.main, batch(step, own.begin * rows, own.end * rows));
  }
  runtime->leave();
  return small_net::parameters_of(exe.scope(), net);
}

struct Results {
  std::vector<Parameters> parameters;
  std::vector<std::string> errors;
};

Results run(const Job& job) {
  transport::InProcessGroup group(job.workers);
  const auto workers = static_cast<size_t>(job.workers);
  Results results{std::vector<Parameters>(workers), std::vector<std::string>(workers)};
  std::vector<std::jthread> threads;
  threads.reserve(workers);
  for (int rank = 0; rank < job.workers; ++rank) {
    threads.emplace_back([&, at = static_cast<size_t>(rank), rank] {
      try {
        results.parameters[at] = run_rank(job, rank, group);
      } catch (const Error& error) {
        results.errors[at] = error.what();
      }
    });
  }
  threads.clear();
  return results;
}

std::vector<DGCMomentumOptions> options_of_nets() {
  return {of_net({.sparsity = {0.95}}),
          of_net({.rampup_begin_step = 2, .rampup_step = 4, .sparsity = {0.75, 0.96}}),
          of_net({.rampup_begin_step = 3,
                  .sparsity = {0.9},
                  .use_nesterov = true,
                  .regularization = fluid::regularizer::L2Decay(1e-3),
                  .grad_clip = fluid::clip::GradientClipByNorm(0.5),
                  .num_trainers = 4})};
}

TEST(DgcTrainingTest, RanksGiveTheBitsOfALocalRun) {
  for (const auto& options : options_of_nets()) {
    for (const auto& [workers, shards] :
         std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {1, 4}, {2, 4}, {4, 4}, {3, 8}}) {
      for (const bool with_rows : {false, true}) {
        const Parameters local = train_locally(options, shards, 1, with_rows);
        const Results results =
            run({.options = options, .workers = workers, .shards = shards, .with_rows = with_rows});
        EXPECT_THAT(results.errors, Each(""));
        EXPECT_THAT(results.parameters, Each(local)) << workers << " workers, " << shards;
      }
    }
  }
}

// Three shards: a third is no float, so a local run differs in the last bits, but ranks do not.
TEST(DgcTrainingTest, AnyNumberOfRanksGivesTheSameBits) {
  for (const auto& options : options_of_nets()) {
    const auto one = run({.options = options, .workers = 1, .shards = 6});
    for (const int workers : {2, 3, 6}) {
      const auto results = run({.options = options, .workers = workers, .shards = 6});
      EXPECT_THAT(results.parameters, Each(one.parameters[0])) << workers << " workers";
    }
    EXPECT_LT(small_net::largest_difference(one.parameters[0], train_locally(options, 6)), 1e-5F);
  }
}

TEST(DgcTrainingTest, ThreadsGiveTheSameBits) {
  for (const auto& options : options_of_nets()) {
    EXPECT_EQ(train_locally(options, 4, 4), train_locally(options, 4));
  }
}

// Before the first step that compresses, and for parameters that never are, it is Momentum.
TEST(DgcTrainingTest, BeforeItBeginsItIsMomentum) {
  for (const bool nesterov : {false, true}) {
    Net net;
    small_net::build(net, fluid::optimizer::Momentum(
                              {.learning_rate = 0.05, .momentum = 0.9, .use_nesterov = nesterov}));
    fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = 2});
    exe.run(net.startup);
    for (int step = 0; step < kSteps; ++step) exe.run(net.main, batch(step, 0, kBatch));
    const Parameters momentum = small_net::parameters_of(exe.scope(), net);
    EXPECT_EQ(train_locally(of_net({.rampup_begin_step = kSteps, .use_nesterov = nesterov}), 2),
              momentum);
    auto dense = of_net({.use_nesterov = nesterov});
    dense.min_numel = 1000;
    EXPECT_EQ(train_locally(dense, 2), momentum);
    EXPECT_NE(train_locally(of_net({.use_nesterov = nesterov}), 2), momentum);
  }
}

// A rank that has no more data knows the form in which the others' steps sum.
TEST(DgcTrainingTest, RanksMayTakeOtherNumbersOfSteps) {
  for (const std::vector<int>& steps :
       std::vector<std::vector<int>>{{8, 2, 8}, {0, 8, 8}, {8, 8, 4}, {1, 1, 8}}) {
    for (const auto& options : options_of_nets()) {
      const auto results =
          run({.options = options, .workers = 3, .shards = 3, .with_rows = true, .steps = steps});
      EXPECT_THAT(results.errors, Each(""));
      for (size_t a = 0; a < 3; ++a) {
        for (size_t b = 0; b < 3; ++b) {
          if (steps[a] != 8 || steps[b] != 8) continue;
          EXPECT_EQ(results.parameters[a], results.parameters[b]);
        }
      }
    }
  }
}

TEST(DgcTrainingTest, RanksInDifferentStepsAreTold) {
  const auto results = run({.options = of_net({}), .counters = {-1, 4}});
  EXPECT_THAT(results.errors, Each(HasSubstr("the workers are not in the same step")));
}

// As after a training with Momentum, whose file was loaded.
TEST(DgcTrainingTest, TheFirstStepTakesTheMomentumSoFar) {
  Net net;
  build_linear(net, small({.sparsity = {0.0}}));
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(net.startup);
  std::fill_n(exe.scope().tensor("w_velocity_0").data<float>(), kSize, 2.0F);
  exe.run(net.main, gradients(0, 0, 1));
  const auto found = small_net::parameters_of(exe.scope(), net).at("w");
  const auto g = gradient(0, 0);
  for (size_t i = 0; i < g.size(); ++i) {
    EXPECT_NEAR(found[i], 0.25 - 0.1 * (0.9 * 2.0 + g[i]), 1e-6) << i;
  }
}

// A program that was loaded in the middle of its training begins with nothing kept.
TEST(DgcTrainingTest, AStepLaterThanTheFirstBeginsWithoutMomentum) {
  const auto options = small({.rampup_begin_step = 2, .sparsity = {0.95}});
  Net net;
  build_linear(net, options);
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(net.startup);
  *exe.scope().tensor(fluid::kDgcCounter).data<int64_t>() = 6;
  exe.run(net.main, gradients(0, 0, 1));
  auto begun = options;
  begun.rampup_begin_step = 0;
  EXPECT_EQ(small_net::parameters_of(exe.scope(), net), train_linear(begun, 1, 1));
}

TEST(DgcTrainingTest, ReplicasOfACompiledProgramGiveTheBitsOfShards) {
  const auto options = options_of_nets()[1];
  const Net net = build_net(options);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = 4, .threads = 4});
  exe.run(net.startup);
  fluid::CompiledProgram compiled(net.main);
  compiled.with_data_parallel(net.cost,
                              {.places = std::vector(4, fluid::Place(fluid::CPUPlace()))});
  for (int step = 0; step < kSteps; ++step) exe.run(compiled, batch(step, 0, kBatch));
  EXPECT_EQ(small_net::parameters_of(exe.scope(), net), train_locally(options, 4));
}

TEST(DgcTrainingTest, WrongOptionsAreNamed) {
  const auto refused = [](const DGCMomentumOptions& options, const std::string& field) {
    try {
      const DGCMomentum optimizer(options);
      ADD_FAILURE() << field << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("DGCMomentum." + field));
    }
  };
  refused({.rampup_begin_step = -1}, "rampup_begin_step");
  refused({.rampup_step = 0}, "rampup_step");
  refused({.sparsity = {}}, "sparsity");
  refused({.sparsity = {0.9, 1.0}}, "sparsity");
  refused({.sparsity = {NAN}}, "sparsity");
  refused({.grad_clip = fluid::clip::GradientClipByGlobalNorm(1)}, "grad_clip");
  refused({.grad_clip = fluid::clip::GradientClipByNorm(1)}, "num_trainers");
}

TEST(DgcTrainingTest, OtherModesRefuseIt) {
  const Net net = build_net(of_net({}));
  const auto refused = [](const auto& transpile, const std::string& mode) {
    try {
      transpile();
      ADD_FAILURE() << mode << " took it";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot be trained with " + mode));
    }
  };
  refused(
      [&] {
        small_net::transpiled(net, small_net::cluster_of(0, 2), 2,
                              {.collective_mode = "local_sgd", .local_sgd_scheduled = true});
      },
      "LocalSGD");
  for (const bool sync : {true, false}) {
    refused(
        [&] {
          transpiler::DistributeTranspiler().transpile({.program = &net.main,
                                                        .pservers = "127.0.0.1:6170",
                                                        .trainers = 2,
                                                        .sync_mode = sync,
                                                        .startup_program = &net.startup});
        },
        "parameter servers");
  }
}

TEST(DgcTrainingTest, AClipNotedOnAParameterIsRefused) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const auto x = layers::data("x", {6}, fluid::DType::kFloat32);
  const auto cost = layers::mean(layers::fc(x, 40));
  fluid::clip::set_gradient_clip(fluid::clip::GradientClipByNorm(1));
  EXPECT_THROW(DGCMomentum(of_net({})).minimize(cost), UsageError);
}

}  // namespace
}  // namespace fleet::strategies

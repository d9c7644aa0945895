// Training on a growing table gives the bits of training on a table with a height: every optimizer,
// clips, threads, logical shards.
#include <functional>
#include <gmock/gmock.h>
#include <memory>
#include <random>

#include "fluid/executor/executor.h"
#include "fluid/optimizer/averages.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/tables/lookup/shared_table.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::optimizer {
namespace {

constexpr int64_t kIds = 60;
constexpr int64_t kDim = 5;
constexpr int64_t kBatch = 42;  // in 1, 2 or 3 shards
constexpr int kSlots = 3;
constexpr int kSteps = 4;
constexpr const char* kTable = "emb";

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;

struct NamedOptimizer {
  std::string name;
  MakeOptimizer make;
  bool lazy = false;  // with a height, too, only rows of the gradient are touched
};

template <class O, class Options>
NamedOptimizer row_rule(const std::string& name, const Options& options, bool lazy = false) {
  return {name, [options] { return std::make_unique<O>(options); }, lazy};
}

std::vector<NamedOptimizer> row_optimizers() {
  AdamOptions paddle{.learning_rate = 0.05, .lazy_mode = true, .paddle_form = true};
  return {
      row_rule<SGD>("SGD", SGDOptions{.learning_rate = 0.1}, true),
      row_rule<Momentum>("Momentum", MomentumOptions{.learning_rate = 0.1, .momentum = 0.9}),
      row_rule<Momentum>(
          "Nesterov", MomentumOptions{.learning_rate = 0.1, .momentum = 0.9, .use_nesterov = true}),
      row_rule<Adagrad>(
          "Adagrad", AdagradOptions{.learning_rate = 0.1, .initial_accumulator_value = 0.25}, true),
      row_rule<DecayedAdagrad>("DecayedAdagrad", DecayedAdagradOptions{.learning_rate = 0.1}),
      row_rule<Adadelta>("Adadelta", AdadeltaOptions{.epsilon = 1e-3}),
      row_rule<Adam>("Adam", AdamOptions{.learning_rate = 0.05, .lazy_mode = true}, true),
      row_rule<Adam>("AdamInPaddlesForm", paddle, true),
      row_rule<Adamax>("Adamax", AdamaxOptions{.learning_rate = 0.05}),
      row_rule<RMSProp>("RMSProp", RMSPropOptions{.learning_rate = 0.01, .momentum = 0.5}),
      row_rule<RMSProp>(
          "CenteredRMSProp",
          RMSPropOptions{
              .learning_rate = 0.01, .epsilon = 1e-3, .momentum = 0.5, .centered = true}),
      row_rule<Ftrl>("Ftrl", FtrlOptions{.learning_rate = 0.1, .l1 = 0.01, .l2 = 0.02}),
  };
}

// A net over three slots of one table, which grows or has a height.
struct Net {
  Net(bool grows, const MakeOptimizer& make, const ParamAttr& attr) {
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    std::vector<Variable> ids;
    for (int slot = 0; slot < kSlots; ++slot) {
      ids.push_back(layers::data(str_cat("ids", slot), {1}, DType::kInt64));
    }
    std::vector<Variable> rows;
    if (grows) {
      rows = layers::sparse_embedding(ids, kDim, {.param_attr = attr});
    } else {
      for (const Variable& slot : ids) {
        rows.push_back(
            layers::embedding(slot, {kIds, kDim}, {.is_sparse = true, .param_attr = attr}));
      }
    }
    const Variable joined = layers::concat(rows, 1);
    const Variable out =
        layers::fc(joined, 1, {.param_attr = {.name = "w"}, .bias_attr = {.name = "b"}});
    loss =
        layers::mean(layers::square_error_cost(out, layers::data("label", {1}, DType::kFloat32)));
    optimizer = make();
    optimizer->minimize(loss);
  }

  Program main;
  Program startup;
  Variable loss;
  std::unique_ptr<Optimizer> optimizer;
};

// Ids of a step, with many of them several times. `all`: each of the table among them.
Feed batch(uint64_t step, bool all) {
  std::mt19937_64 random(17 + step);
  Feed feed;
  for (int slot = 0; slot < kSlots; ++slot) {
    std::vector<int64_t> ids(kBatch);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto place = static_cast<int64_t>(i) + slot * kBatch;
      const bool counts_up = all && place < kIds;
      ids[i] = counts_up ? place : static_cast<int64_t>(random() % kIds % (random() % 60 + 1));
    }
    feed.emplace_back(str_cat("ids", slot), Tensor::from(ids, {kBatch, 1}));
  }
  std::vector<float> labels(kBatch);
  for (float& label : labels) label = static_cast<float>(random() % 1000) / 500 - 1;
  feed.emplace_back("label", Tensor::from(labels, {kBatch, 1}));
  return feed;
}

std::vector<float> table_rows(const Executor& executor) {
  std::vector<uint64_t> keys(kIds);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  std::vector<float> values(kIds * kDim);
  const auto table = growing_table(const_cast<Executor&>(executor).scope(), kTable);
  table->reading([&](const tables::GrowingTable& rows) {
    rows.find(keys, values.data(), tables::GrowingTable::Missing::kInitial);
  });
  return values;
}

struct Run {
  std::vector<float> losses;
  std::vector<float> table;
  bool operator==(const Run&) const = default;
};

Run train_growing(const Net& net, const ExecutorOptions& options, bool all) {
  Executor executor(CPUPlace(), options);
  executor.run(net.startup);
  Run run;
  for (uint64_t step = 0; step < kSteps; ++step) {
    run.losses.push_back(executor.run(net.main, batch(step, all), {net.loss})[0].item<float>());
  }
  run.table = table_rows(executor);
  return run;
}

// `first`: what rows start from.
Run train_with_height(const Net& net, const ExecutorOptions& options, bool all,
                      const std::vector<float>& first) {
  Executor executor(CPUPlace(), options);
  executor.run(net.startup);
  executor.scope().var(kTable) = Tensor::from(first, {kIds, kDim});
  Run run;
  for (uint64_t step = 0; step < kSteps; ++step) {
    run.losses.push_back(executor.run(net.main, batch(step, all), {net.loss})[0].item<float>());
  }
  const auto values = executor.scope().tensor(kTable).values<float>();
  run.table.assign(values.begin(), values.end());
  return run;
}

std::vector<float> first_rows(const Net& net) {
  Executor executor;
  executor.run(net.startup);
  return table_rows(executor);
}

void expect_same(const NamedOptimizer& with, const ParamAttr& attr) {
  const Net growing(true, with.make, attr);
  const Net plain(false, with.make, attr);
  const std::vector<float> first = first_rows(growing);
  for (const int shards : {1, 2, 3}) {
    const ExecutorOptions one{.logical_shards = shards, .threads = 1, .op_threads = 1};
    const Run expected = train_with_height(plain, one, !with.lazy, first);
    EXPECT_NE(expected.table, first);
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(str_cat(with.name, ", ", shards, " shards, ", threads, " threads"));
      const ExecutorOptions options{
          .logical_shards = shards, .threads = threads, .op_threads = threads};
      EXPECT_EQ(train_growing(growing, options, !with.lazy), expected);
    }
  }
}

const ParamAttr kAttr = {.name = kTable,
                         .initializer = initializer::Uniform{.low = -0.5, .high = 0.5}};

class RowOptimizers : public ::testing::TestWithParam<NamedOptimizer> {};

TEST_P(RowOptimizers, GiveTheBitsOfATableWithAHeight) {
  expect_same(GetParam(), kAttr);
}

INSTANTIATE_TEST_SUITE_P(All, RowOptimizers, ::testing::ValuesIn(row_optimizers()),
                         [](const auto& row) { return row.param.name; });

TEST(GrowingTables, TakeARateOfTheirOwn) {
  ParamAttr attr = kAttr;
  attr.learning_rate = 0.25;
  expect_same(row_rule<Adagrad>("Adagrad", AdagradOptions{.learning_rate = 0.1}, true), attr);
}

TEST(GrowingTables, AreClippedAsTablesWithAHeight) {
  for (const Penalty& clip : {clip::GradientClipByValue(0.002), clip::GradientClipByNorm(0.01),
                              clip::GradientClipByGlobalNorm(0.01)}) {
    const SGDOptions options{.learning_rate = 1.0, .grad_clip = clip};
    NamedOptimizer clipped = row_rule<SGD>("SGD with " + clip.kind, options, true);
    expect_same(clipped, kAttr);
  }
}

TEST(GrowingTables, AdamTakesVariablesForItsBetas) {
  const MakeOptimizer make = [] {
    return std::make_unique<Adam>(
        AdamOptions{.beta1 = layers::fill_constant({1}, DType::kFloat32, 0.85),
                    .beta2 = layers::fill_constant({1}, DType::kFloat32, 0.99),
                    .lazy_mode = true});
  };
  expect_same({"Adam", make, true}, kAttr);
}

TEST(GrowingTables, PowersGoOnInStepsWithoutRows) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Variable ids = layers::data("ids", {1}, DType::kInt64);
  const Variable rows =
      layers::sparse_embedding(ids, 2, {.padding_idx = 7, .param_attr = {.name = kTable}});
  const Variable loss = layers::mean(rows);
  Adam({.beta1 = 0.5}).minimize(loss);
  Executor executor;
  executor.run(startup);
  const Tensor padding = Tensor::from(std::vector<int64_t>{7, 7}, {2, 1});
  for (int step = 0; step < 3; ++step) executor.run(main, {{"ids", padding}});
  EXPECT_EQ(growing_table(executor.scope(), kTable)->statistics().rows, 0U);
  EXPECT_EQ(executor.scope().tensor(str_cat(kTable, "_beta1_pow_acc_0")).item<float>(), 0.0625F);
}

TEST(GrowingTables, KeepStatesInTheirRows) {
  const Net net(
      true, [] { return std::make_unique<Adam>(AdamOptions{}); }, kAttr);
  Executor executor;
  executor.run(net.startup);
  const auto table = growing_table(executor.scope(), kTable);
  ASSERT_EQ(table->options().states.size(), 2U);
  EXPECT_EQ(table->options().states[0].name, "emb_moment1_0");
  EXPECT_EQ(table->options().states[1].width, static_cast<size_t>(kDim));
  for (const VarDesc* var : net.main.global_block().vars()) {
    EXPECT_FALSE(var->name.starts_with("emb_moment")) << "a variable beside the rows";
  }
}

class GrowingTableMistakes : public NetFixture {
 protected:
  Variable loss_of(const SparseEmbeddingOptions& options = {.param_attr = {.name = kTable}}) {
    const Variable ids = layers::data("ids", {1}, DType::kInt64);
    return layers::mean(layers::sparse_embedding(ids, 2, options));
  }
  Feed feed() { return {{"ids", Tensor::from(std::vector<int64_t>{1, 2}, {2, 1})}}; }
};

TEST_F(GrowingTableMistakes, OptimizersThatLookAtWholeParametersAreRefused) {
  const Variable loss = loss_of();
  expect_error([&] { Lamb().minimize(loss); }, ErrorCode::kNotSupported, {"lamb", kTable});
  expect_error([&] { LarsMomentum().minimize(loss); }, ErrorCode::kNotSupported, {"lars", kTable});
  expect_error([&] { Dpsgd().minimize(loss); }, ErrorCode::kNotSupported, {"dpsgd", kTable});
  SGD sgd;
  expect_error([&] { Lookahead(sgd).minimize(loss); }, ErrorCode::kNotSupported,
               {"Lookahead", kTable});
}

TEST_F(GrowingTableMistakes, RegularizersAreRefused) {
  const Variable loss = loss_of();
  expect_error([&] { SGD({.regularization = regularizer::L2Decay(0.1)}).minimize(loss); },
               ErrorCode::kNotSupported, {"every row", kTable});
}

TEST_F(GrowingTableMistakes, TheStartupProgramRunsAfterMinimize) {
  const Variable loss = loss_of();
  Executor executor;
  executor.run(startup_);
  Adam().minimize(loss);
  executor.run(startup_.clone().prune(std::vector<std::string>{"learning_rate_0"}, {}));
  for (const char* name : {"emb_beta1_pow_acc_0", "emb_beta2_pow_acc_0"}) {
    executor.scope().var(name) = Tensor::scalar(0.9F);
  }
  expect_error([&] { executor.run(main_, feed()); }, ErrorCode::kPrecondition,
               {"emb_moment1_0", "after minimize"});
}

TEST_F(GrowingTableMistakes, TheStartupProgramMustBeTheLayers) {
  const Variable loss = loss_of();
  Program other;
  expect_error([&] { Adam().minimize(loss, {.startup_program = &other}); },
               ErrorCode::kInvalidProgram, {"startup", kTable});
}

}  // namespace
}  // namespace fleet::fluid::optimizer

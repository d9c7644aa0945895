// Ops that threads run side by side, and the bits that they leave.
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/executor/executor.h"
#include "fluid/executor/plan/plan_impl.h"
#include "fluid/io/persistables.h"
#include "fluid/layers/layers.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/testing/device/emulated_device.h"

namespace fleet::fluid {
namespace {

constexpr int kSlots = 12;
constexpr int kBatch = 50;

struct Options {
  bool sparse = true;
  bool one_table = false;
  int64_t height = 100;
};

// The sum of a table's rows for each slot, and a layer.
class Slots {
 public:
  explicit Slots(const Options& options) {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    std::vector<Variable> rows;
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto ids = layers::data(str_cat("ids", slot), {1}, DType::kInt64);
      const std::string table = options.one_table ? "table" : str_cat("table", slot);
      rows.push_back(layers::embedding(
          ids, {options.height, 8}, {.is_sparse = options.sparse, .param_attr = {.name = table}}));
    }
    const auto hidden = layers::fc(layers::concat(rows, 1), 300, {.act = "tanh"});
    cost_ = layers::mean(layers::fc(hidden, 1));
    optimizer::Adagrad({.learning_rate = 0.1}).minimize(cost_);
    main_.set_random_seed(5);
    startup_.set_random_seed(5);
  }

  // By type, how many ops each row has that may run at once.
  std::multimap<std::string, int> rows() const {
    std::vector<std::string> feeds;
    feeds.reserve(kSlots);
    for (int slot = 0; slot < kSlots; ++slot) feeds.push_back(str_cat("ids", slot));
    const auto plan =
        Plan::compile({.program = &main_, .feeds = std::move(feeds), .fetches = {cost_.name()}},
                      KernelTable::standard(), true);
    std::multimap<std::string, int> found;
    for (const PlanOp& op : plan->ops()) {
      if (op.beside > 1) found.emplace(op.op->type, op.beside);
    }
    return found;
  }

  NamedTensors train(int threads, bool check) const {
    Executor executor(CPUPlace(), {.check_nan_inf = check, .op_threads = threads});
    executor.run(startup_);
    NamedTensors all;
    for (int step = 0; step < 4; ++step) {
      Feed feed;
      for (int slot = 0; slot < kSlots; ++slot) {
        Tensor ids(DType::kInt64, {kBatch, 1});
        for (int64_t i = 0; i < kBatch; ++i) {
          ids.data<int64_t>()[i] = (i * 7 + slot * 3 + step * 11) % 100;
        }
        feed.emplace_back(str_cat("ids", slot), std::move(ids));
      }
      all[str_cat("cost", step)] = executor.run(main_, feed, {cost_})[0];
    }
    for (const VarDesc* var : persistables(main_)) {
      all[var->name] = executor.scope().tensor(var->name).clone();
    }
    return all;
  }

 private:
  Program main_;
  Program startup_;
  Variable cost_;
};

int most(const std::multimap<std::string, int>& rows, const std::string& type) {
  int found = 0;
  for (const auto& [name, count] : rows) found = std::max(found, name == type ? count : 0);
  return found;
}

TEST(SideBySide, AreLookupsAndUpdatesOfManyTables) {
  const auto rows = Slots({}).rows();
  EXPECT_EQ(most(rows, "lookup_table"), kSlots);
  EXPECT_GE(most(rows, "lookup_table_grad"), kSlots) << "and updates behind them";
  EXPECT_GE(most(rows, "adagrad"), kSlots);
}

// Its gradients are summed first, and it is changed once.
TEST(SideBySide, AreNoUpdatesOfOneTable) {
  const auto rows = Slots({.one_table = true}).rows();
  EXPECT_EQ(most(rows, "lookup_table"), kSlots) << "they only read it";
  EXPECT_LT(most(rows, "adagrad"), kSlots);
}

TEST(SideBySide, AreNoLargeDenseOnes) {
  const auto small = Slots({.sparse = false, .height = 100}).rows();
  EXPECT_GT(most(small, "lookup_table_grad"), 1) << "some have the memory of others' inputs";
  const auto large = Slots({.sparse = false, .height = 10000}).rows();
  EXPECT_EQ(most(large, "lookup_table"), kSlots);
  EXPECT_EQ(most(large, "lookup_table_grad"), 0);
  EXPECT_LT(most(large, "adagrad"), kSlots);
}

TEST(SideBySide, ChangeNoBit) {
  for (const Options& options : {Options{}, Options{.one_table = true}, Options{.sparse = false}}) {
    const Slots net(options);
    const NamedTensors one = net.train(1, false);
    for (const int threads : {2, 3, 7}) {
      for (const bool check : {false, true}) {
        for (const auto& [name, value] : net.train(threads, check)) {
          const Tensor& expected = one.at(name);
          EXPECT_EQ(std::memcmp(value.raw(), expected.raw(), expected.bytes()), 0)
              << name << " with " << threads << " threads";
        }
      }
    }
  }
}

// On a device: so many ops of each type whose work the next one may put there.
std::map<std::string, int> joined_on_a_device(const Program& program, const Variable& loss) {
  fleet::testing::emulate_two_devices();
  const KernelTable kernels =
      fleet::testing::kernels_with_device_ops([](const std::string&) { return true; });
  const auto plan = Plan::compile(
      {.program = &program, .feeds = {"x"}, .fetches = {loss.name()}, .place = CUDAPlace(0)},
      kernels, true);
  std::map<std::string, int> joined;
  for (const PlanOp& op : plan->ops()) joined[op.op->type] += op.with_next ? 1 : 0;
  return joined;
}

// Layers with a weight and a bias each.
constexpr int kLayers = 5;
Variable loss_of_layers() {
  Variable hidden = layers::data("x", {8});
  for (int i = 0; i < kLayers; ++i) hidden = layers::fc(hidden, 8, {.act = "tanh"});
  return layers::mean(hidden);
}

class RowsOfADevice : public ::testing::Test {
 protected:
  Program main_;
  Program startup_;
  ProgramGuard programs_{main_, startup_};
  unique_name::Guard names_;
  Variable loss_ = loss_of_layers();
};

TEST_F(RowsOfADevice, AreUpdatesAndWhatIsDoneToGradientsBefore) {
  optimizer::SGD sgd({.learning_rate = 0.1, .grad_clip = clip::GradientClipByGlobalNorm(1.0)});
  sgd.minimize(loss_);
  const auto joined = joined_on_a_device(main_, loss_);
  EXPECT_EQ(joined.at("sgd"), 2 * kLayers - 1);
  EXPECT_GE(joined.at("elementwise_mul"), kLayers) << "where no result has another's memory";
  EXPECT_EQ(joined.at("tanh"), 0);
}

TEST_F(RowsOfADevice, AreTheChecksOfLossScaling) {
  optimizer::SGD sgd({.learning_rate = 0.1});
  auto mixed = mixed_precision::decorate(sgd);
  mixed.minimize(loss_);
  const auto joined = joined_on_a_device(main_, loss_);
  EXPECT_EQ(joined.at("elementwise_div"), 2 * kLayers - 1);
  EXPECT_EQ(joined.at("reduce_sum"), 2 * kLayers - 1);
  EXPECT_EQ(joined.at("sgd"), 2 * kLayers - 1);
}

}  // namespace
}  // namespace fleet::fluid

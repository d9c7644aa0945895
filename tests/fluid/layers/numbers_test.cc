// Layers whose shapes, axes, sections and counts variables give: each against the same layer with
// the numbers themselves, step by step, forward and backward.
#include <cstring>
#include <set>
#include <utility>

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/op_schema.h"
#include "tests/fluid/gradient_check.h"

namespace fleet::fluid {
namespace {

using layers::Number;
using layers::Numbers;

// What a layer takes: every number on its own, or all of them as one.
struct Taken {
  std::vector<Number> each;
  Numbers whole;
};

struct NumbersCase {
  std::string name;
  std::function<Variable(const Variable& x, const Taken& n)> build;  // x is [4, 6], float64
  std::vector<std::vector<int32_t>> steps;                           // the numbers of each step
  Shape shape;  // as the program with variables knows it
  bool trains = true;
};

void PrintTo(const NumbersCase& layer, std::ostream* out) {
  *out << layer.name;
}

Variable lengths() {
  return layers::data("lengths", {4, 1}, DType::kInt64, {.append_batch_size = false});
}

// Of Paddle's fluid.one_hot.
Variable one_hot_v2(const Variable& x, const Number& depth) {
  const LayerHelper helper("one_hot_v2");
  SlotMap inputs = {{"X", {x.name()}}};
  const AttributeMap attrs = {{"depth", depth.attribute(helper, "depth_tensor", inputs, -1)}};
  const Variable out = helper.temp(DType::kFloat32, true);
  helper.append("one_hot_v2", std::move(inputs), {{"Out", {out.name()}}}, attrs);
  return out;
}

void add_reshapes(std::vector<NumbersCase>& all) {
  all.push_back({"reshape_each",
                 [](const Variable& x, const Taken& n) {
                   return layers::reshape(x, {n.each[0], n.each[1]});
                 },
                 {{8, 3}, {2, 12}, {24, 1}, {24, 1}, {8, 3}},
                 {-1, -1}});
  all.push_back({"reshape_partly",
                 [](const Variable& x, const Taken& n) {
                   return layers::reshape(x, {n.each[0], 0, -1}, {.act = "tanh"});
                 },
                 {{4}, {1}, {2}},
                 {-1, 6, -1}});
  all.push_back({"reshape_whole",
                 [](const Variable& x, const Taken& n) { return layers::reshape(x, n.whole); },
                 {{2, 2, 6}, {2, -1, 1}, {0, 3, 2}},
                 {-1, -1, -1}});
  all.push_back({"unsqueeze_each",
                 [](const Variable& x, const Taken& n) {
                   return layers::unsqueeze(x, {n.each[0], 0});
                 },
                 {{0}, {2}, {1}},
                 {-1, -1, -1, -1}});
  all.push_back({"unsqueeze_whole",
                 [](const Variable& x, const Taken& n) { return layers::unsqueeze(x, n.whole); },
                 {{0, 3}, {1, 1}},
                 {-1, -1, -1, -1}});
}

void add_cuts(std::vector<NumbersCase>& all) {
  all.push_back({"slice_each",
                 [](const Variable& x, const Taken& n) {
                   return layers::slice(x, {0, 1}, {n.each[0], 1}, {n.each[1], 5});
                 },
                 {{0, 4}, {1, 3}, {-2, 9}},
                 {-1, 4}});
  all.push_back({"slice_whole_starts",
                 [](const Variable& x, const Taken& n) {
                   return layers::slice(x, {0, 1}, n.whole, {4, 6});
                 },
                 {{0, 4}, {3, 0}},
                 {-1, -1}});
  all.push_back(
      {"slice_whole_ends",
       [](const Variable& x, const Taken& n) { return layers::slice(x, {1}, {1}, n.whole); },
       {{2}, {6}},
       {4, -1}});
  all.push_back({"split_sections",
                 [](const Variable& x, const Taken& n) {
                   const auto parts = layers::split(x, {n.each[0], n.each[1], 1}, 1);
                   return layers::concat({parts[2], parts[0], parts[1]}, 1);
                 },
                 {{2, 3}, {1, 4}, {4, 1}},
                 {4, -1}});
  all.push_back({"split_axis",
                 [](const Variable& x, const Taken& n) {
                   const auto parts = layers::split(x, 2, n.each[0]);
                   return parts[1] * parts[0] + parts[1];
                 },
                 {{0}, {1}, {-1}},
                 {-1, -1}});
  all.push_back({"concat_axis",
                 [](const Variable& x, const Taken& n) {
                   return layers::concat({x, x * 2.0}, n.each[0]);
                 },
                 {{0}, {1}, {-2}},
                 {-1, -1}});
}

void add_repetitions(std::vector<NumbersCase>& all) {
  all.push_back({"expand_each",
                 [](const Variable& x, const Taken& n) {
                   return layers::expand(x, {n.each[0], 2});
                 },
                 {{1}, {3}, {2}},
                 {-1, 12}});
  all.push_back({"expand_whole",
                 [](const Variable& x, const Taken& n) { return layers::expand(x, n.whole); },
                 {{1, 1}, {2, 3}},
                 {-1, -1}});
  all.push_back(
      {"topk",
       [](const Variable& x, const Taken& n) { return layers::topk(x, n.each[0]).values; },
       {{1}, {6}, {2}},
       {4, -1}});
  all.push_back(
      {"one_hot",
       [](const Variable&, const Taken& n) { return layers::one_hot(lengths(), n.each[0]); },
       {{7}, {9}},
       {4, -1}});
  all.push_back({"one_hot_v2",
                 [](const Variable&, const Taken& n) { return one_hot_v2(lengths(), n.each[0]); },
                 {{7}, {9}},
                 {4, 1, -1}});
  all.push_back(
      {"sequence_mask",
       [](const Variable&, const Taken& n) { return layers::sequence_mask(lengths(), n.each[0]); },
       {{3}, {8}},
       {4, 1, -1}});
}

void add_fills(std::vector<NumbersCase>& all) {
  all.push_back({"fill_constant_each",
                 [](const Variable&, const Taken& n) {
                   return layers::fill_constant({n.each[0], 3}, DType::kFloat64, 1.5);
                 },
                 {{1}, {4}},
                 {-1, 3}});
  all.push_back({"fill_constant_whole",
                 [](const Variable&, const Taken& n) {
                   return layers::fill_constant(n.whole, DType::kInt64, 1LL << 30);
                 },
                 {{1, 2, 3}, {4, 0, 1}},
                 {-1, -1, -1}});
  all.push_back({"uniform_random_each",
                 [](const Variable&, const Taken& n) {
                   return layers::uniform_random({n.each[0], 3}, {.min = -2.0, .max = 5.0});
                 },
                 {{5}, {2}, {5}},
                 {-1, 3},
                 false});
  all.push_back({"uniform_random_whole",
                 [](const Variable&, const Taken& n) {
                   return layers::uniform_random(n.whole, {.dtype = DType::kFloat64, .seed = 3});
                 },
                 {{5}, {2}, {5}},
                 {-1},
                 false});
  all.push_back({"gaussian_random_each",
                 [](const Variable&, const Taken& n) {
                   return layers::gaussian_random({2, n.each[0]}, {.mean = 1.0, .std = 0.5});
                 },
                 {{3}, {4}},
                 {2, -1},
                 false});
  all.push_back({"gaussian_random_whole",
                 [](const Variable&, const Taken& n) { return layers::gaussian_random(n.whole); },
                 {{2, 3}, {1, 4}},
                 {-1, -1},
                 false});
}

std::vector<NumbersCase> cases() {
  std::vector<NumbersCase> all;
  add_reshapes(all);
  add_cuts(all);
  add_repetitions(all);
  add_fills(all);
  return all;
}

void expect_same_bits(const Tensor& got, const Tensor& wanted, const std::string& name) {
  ASSERT_EQ(got.dtype(), wanted.dtype()) << name;
  ASSERT_EQ(got.shape(), wanted.shape()) << name;
  EXPECT_TRUE(got.bytes() == 0 || std::memcmp(got.raw(), wanted.raw(), got.bytes()) == 0) << name;
}

// One program with the layer, and its gradient when it has one.
class Net {
 public:
  Net(const NumbersCase& layer, const Taken& taken) {
    const Variable x = layers::data("x", {4, 6}, DType::kFloat64, {.append_batch_size = false});
    const Variable w = layers::create_parameter({4, 6}, DType::kFloat64, {.name = "w"});
    out_ = layer.build(x * w, taken);
    fetched_ = {out_.name()};
    if (out_.stop_gradient() || !layer.trains) return;
    const auto pairs = append_backward(layers::mean(layers::square(out_) + out_ * 0.7));
    fetched_.push_back(pairs.at(0).grad.name());
  }

  const Variable& out() const { return out_; }
  const std::vector<std::string>& fetched() const { return fetched_; }
  std::vector<Fetch> fetches() const { return {fetched_.begin(), fetched_.end()}; }

 private:
  Variable out_;
  std::vector<std::string> fetched_;
};

// Data variables for `count` numbers.
Taken variables(DType dtype, int64_t count) {
  const auto given = [dtype](const std::string& name, int64_t size) {
    return layers::data(name, Shape{size}, dtype, {.append_batch_size = false});
  };
  Taken taken{.each = {}, .whole = given("all", count)};
  for (int64_t i = 0; i < count; ++i) taken.each.emplace_back(given(str_cat("n", i), 1));
  return taken;
}

class TensorNumbers : public testing::TestWithParam<NumbersCase> {
 protected:
  static Feed feed(const Program& main, size_t step) {
    Feed feed = {{"x", random_tensor({4, 6}, static_cast<unsigned>(step))}};
    if (main.global_block().find_var("lengths") != nullptr) {
      feed.emplace_back("lengths", int_tensor({2, 6, 1, 3}, {4, 1}));
    }
    return feed;
  }
  static Tensor numbers(DType dtype, const std::vector<int32_t>& values) {
    Tensor tensor(dtype, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kInt64) {
        tensor.data<int64_t>()[i] = values[i];
      } else {
        tensor.data<int32_t>()[i] = values[i];
      }
    }
    return tensor;
  }
  // What the numbers themselves give in step `step`.
  static std::vector<Tensor> expected(size_t step) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const auto& values = GetParam().steps[step];
    const Net net(GetParam(), {.each = {values.begin(), values.end()}, .whole = Numbers(values)});
    Executor executor;
    executor.run(startup);
    std::vector<Tensor> result;
    for (size_t i = 0; i <= step; ++i) result = executor.run(main, feed(main, step), net.fetches());
    return result;
  }
};

TEST_P(TensorNumbers, GiveWhatTheNumbersGiveInEachStep) {
  const NumbersCase& layer = GetParam();
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const auto count = static_cast<int64_t>(layer.steps[0].size());
    const Net net(layer, variables(dtype, count));
    EXPECT_EQ(net.out().shape(), layer.shape) << net.out().shape();
    Executor executor;
    executor.run(startup);
    for (size_t step = 0; step < layer.steps.size(); ++step) {
      SCOPED_TRACE(str_cat(dtype_name(dtype), ", step ", step));
      Feed fed = feed(main, step);
      fed.emplace_back("all", numbers(dtype, layer.steps[step]));
      for (size_t i = 0; i < layer.steps[step].size(); ++i) {
        fed.emplace_back(str_cat("n", i), numbers(dtype, {layer.steps[step][i]}));
      }
      const auto got = executor.run(main, fed, net.fetches());
      const auto wanted = expected(step);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        expect_same_bits(got[i], wanted[i], net.fetched()[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TensorNumbers, testing::ValuesIn(cases()),
                         [](const auto& row) { return row.param.name; });

// Slots of tensors that give numbers: optional, and named so in Paddle.
bool gives_numbers(const SlotSpec& slot) {
  const std::set<std::string> others = {"Shape", "K", "ExpandTimes", "depth_tensor",
                                        "expand_times_tensor"};
  return slot.optional && (slot.name.ends_with("Tensor") || slot.name.ends_with("TensorList") ||
                           others.contains(slot.name));
}

TEST(TensorNumbersCases, HaveEverySlotThatGivesNumbers) {
  // Those of real numbers are in the tests below; Adam's in tests/fluid/optimizer, that of
  // sync_batch_norm in tests/strategies/collective.
  std::set<std::string> tried = {"scale ScaleTensor",
                                 "pow FactorTensor",
                                 "fill_constant ValueTensor",
                                 "batch_norm MomentumTensor",
                                 "sync_batch_norm MomentumTensor",
                                 "adam Beta1Tensor",
                                 "adam Beta2Tensor",
                                 "update_growing_table Beta1Tensor",
                                 "update_growing_table Beta2Tensor"};
  for (const NumbersCase& layer : cases()) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const Net net(layer, variables(DType::kInt32, static_cast<int64_t>(layer.steps[0].size())));
    for (const auto& op : main.global_block().ops()) {
      for (const auto& [slot, names] : op->inputs) tried.insert(str_cat(op->type, " ", slot));
    }
  }
  for (const auto& [type, schema] : OpTable::standard().all()) {
    if (type.ends_with("_grad")) continue;
    for (const SlotSpec& slot : schema.inputs) {
      if (!gives_numbers(slot)) continue;
      EXPECT_TRUE(tried.contains(str_cat(type, " ", slot.name))) << type << " " << slot.name;
    }
  }
}

using RealNumbers = GradientCheck;

TEST_F(RealNumbers, AScaleAPowerAndAValueChangeFromStepToStep) {
  const Variable x = data("x", {3});
  const Variable number =
      layers::data("number", {1}, DType::kFloat64, {.append_batch_size = false});
  const Variable scaled = layers::scale(x, {.scale = number, .bias = 1.0});
  const Variable power = layers::pow(x, {.factor = number});
  const Variable filled = layers::fill_constant({2}, DType::kFloat64, number);
  for (const double value : {2.0, -0.5, 3.0}) {
    const Tensor fed = Tensor::from(std::vector<double>{value}, {1});
    const Tensor xs = random_tensor({2, 3}, 5, 0.5, 2);
    const auto got = executor_.run(main_, {{"x", xs}, {"number", fed}}, {scaled, power, filled});
    for (size_t i = 0; i < 6; ++i) {
      const double at = xs.values<double>()[i];
      EXPECT_DOUBLE_EQ(got[0].values<double>()[i], value * at + 1.0);
      EXPECT_NEAR(got[1].values<double>()[i], std::pow(at, value), 1e-14);
    }
    EXPECT_EQ(got[2].values<double>()[1], value);
  }
}

TEST_F(RealNumbers, GradientsUseTheScaleAndThePowerOfTheStep) {
  const Variable x = data("x", {3});
  const Variable half = layers::fill_constant({1}, DType::kFloat64, 0.5);
  const Variable h = layers::square(layers::fc(x, 4)) + 1.0;
  const Variable out = layers::scale(layers::pow(h, {.factor = half + 1.0}), {.scale = half});
  expect_gradients(loss_of(out), {{"x", random_tensor({5, 3}, 4)}});
}

TEST_F(RealNumbers, TheMomentumOfRunningStatisticsMayBeGiven) {
  const Variable x = data("x", {2});
  const Variable momentum =
      layers::data("momentum", {1}, DType::kFloat32, {.append_batch_size = false});
  layers::batch_norm(x, {.momentum = momentum, .moving_mean_name = "running"});
  executor_.run(startup_);
  std::vector<double> running = {0, 0};
  for (const float given : {0.5F, 0.0F, 1.0F}) {
    const Tensor xs = random_tensor({3, 2}, 7);
    executor_.run(main_, {{"x", xs}, {"momentum", Tensor::from(std::vector<float>{given}, {1})}});
    const auto values = xs.values<double>();
    for (size_t k = 0; k < 2; ++k) {
      const double mean = (values[k] + values[k + 2] + values[k + 4]) / 3;
      running[k] = given * running[k] + (1 - given) * mean;
      EXPECT_NEAR(executor_.scope().tensor("running").values<double>()[k], running[k], 1e-12);
    }
  }
}

// Runs a layer of x [3, 4] with the number 2, and then with one that does not fit.
void expect_refused(const std::function<Variable(const Variable& x, const Variable& n)>& layer,
                    int32_t number, const std::vector<std::string>& texts) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const Variable x = layers::data("x", {4}, DType::kFloat64);
  const Variable n = layers::data("n", {1}, DType::kInt32, {.append_batch_size = false});
  const Variable out = layer(x, n);
  Executor executor;
  const auto run = [&](int32_t value) {
    executor.run(
        main,
        {{"x", random_tensor({3, 4}, 1)}, {"n", Tensor::from(std::vector<int32_t>{value}, {1})}},
        {out});
  };
  run(2);
  expect_error([&] { run(number); }, ErrorCode::kShapeMismatch, texts);
  run(2);
}

TEST(TensorNumbersMistakes, NumbersThatDoNotFitAreErrorsOfTheStep) {
  expect_refused(
      [](const Variable& x, const Variable& n) {
        return layers::reshape(x, {n, -1});
      },
      5, {"reshape2", "[5, -1]"});
  expect_refused([](const Variable& x, const Variable& n) { return layers::topk(x, n).values; }, 5,
                 {"top_k", "5"});
  expect_refused(
      [](const Variable& x, const Variable& n) {
        return layers::expand(x, {1, n});
      },
      -2, {"expand", "-2"});
  expect_refused(
      [](const Variable& x, const Variable& n) {
        return layers::concat({x, x}, n - 1);
      },
      3, {"concat", "[-2, 2)"});
}

}  // namespace
}  // namespace fleet::fluid

// Programs of which some ops run on a device and others on the CPU. The device is emulated
// (tests/testing/device/emulated_device.h): whoever touches its memory but its kernels and copies
// crashes.

#include "fluid/executor/places.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "base/hash.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/fluid/gradient_check.h"
#include "tests/testing/device/emulated_device.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;
using Ops = std::set<std::string>;

class Places : public GradientCheck {
 protected:
  static constexpr int kRuns = 2;

  Places() { testing::emulate_two_devices(); }

  // An executor on a device that has kernels for the ops that `chosen` accepts.
  Executor device_executor(const std::function<bool(const std::string&)>& chosen,
                           ExecutorOptions options = {}) {
    tables_.push_back(std::make_unique<KernelTable>(testing::kernels_with_device_ops(chosen)));
    options.kernels = tables_.back().get();
    return Executor(CUDAPlace(0), std::move(options));
  }

  // Whatever ops the device has kernels for, each run gives the bits of the CPU.
  void expect_bits_of_cpu(const Feed& feed, const std::vector<Fetch>& fetch) {
    Executor cpu;
    cpu.run(startup_);
    std::vector<std::vector<Tensor>> expected;
    expected.reserve(kRuns);
    for (int run = 0; run < kRuns; ++run) expected.push_back(cpu.run(main_, feed, fetch));
    for (uint64_t seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(str_cat("seed ", seed));
      Executor device = device_executor(
          [seed](const std::string& op) { return seed == 0 || fnv1a(str_cat(op, seed)) % 3 != 0; });
      device.run(startup_);
      for (int run = 0; run < kRuns; ++run) {
        const std::vector<Tensor> got = device.run(main_, feed, fetch);
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i].to_string(1000), expected[static_cast<size_t>(run)][i].to_string(1000))
              << fetch[i].name;
        }
      }
    }
  }

  // With the gradients of all parameters.
  void expect_gradients_of_cpu(const Variable& loss, const Feed& feed) {
    std::vector<Fetch> fetch = {loss};
    for (const ParamGrad& pair : append_backward(loss)) fetch.emplace_back(pair.grad);
    ASSERT_GT(fetch.size(), 1U);
    expect_bits_of_cpu(feed, fetch);
  }

  static Variable index(int64_t value) {
    return layers::fill_constant({1}, DType::kInt64, static_cast<double>(value));
  }

  std::vector<std::unique_ptr<KernelTable>> tables_;
};

TEST_F(Places, AnOpWithoutAKernelOnTheDeviceRunsOnTheCpu) {
  const Variable x = data("x", {3});
  const Variable h = layers::tanh(layers::square(x));
  Executor device = device_executor([](const std::string& op) { return op == "tanh"; });
  const uint64_t before = testing::device_kernels_run();
  const Tensor fed = random_tensor({2, 3}, 1);
  const Tensor got = device.run(main_, {{"x", fed}}, {h})[0];
  EXPECT_EQ(got.to_string(), Executor().run(main_, {{"x", fed}}, {h})[0].to_string());
  EXPECT_EQ(testing::device_kernels_run(), before + 1);
}

TEST_F(Places, StrictOnesRefuseItByName) {
  const Variable x = data("x", {3});
  layers::tanh(layers::square(x));
  Executor device =
      device_executor([](const std::string& op) { return op == "tanh"; }, {.strict_place = true});
  expect_error(
      [&] {
        device.run(main_, {{"x", random_tensor({2, 3}, 1)}});
      },
      ErrorCode::kNotSupported, {"square", "cuda:0", "strict_place"});
}

TEST_F(Places, StrictOnesTakeAProgramThatTheDeviceHasKernelsFor) {
  const Variable x = data("x", {3});
  const Variable h = layers::tanh(x);
  Executor device =
      device_executor([](const std::string& op) { return op == "tanh"; }, {.strict_place = true});
  EXPECT_EQ(device.run(main_, {{"x", random_tensor({2, 3}, 1)}}, {h})[0].shape(), Shape({2, 3}));
}

TEST_F(Places, AValueThatSeveralOpsOfTheCpuReadIsCopiedOnce) {
  const Variable x = data("x", {3});
  const Variable h = layers::tanh(x);
  const Variable out = layers::square(h) + layers::sqrt(layers::square(h));
  Executor device = device_executor([](const std::string& op) { return op == "tanh"; });
  const uint64_t before = testing::device_bytes_copied();
  device.run(main_, {{"x", random_tensor({2, 3}, 1)}}, {out});
  EXPECT_EQ(testing::device_bytes_copied(), before + 2 * 6 * sizeof(double));  // x there, h back
}

TEST_F(Places, LearningRatesAreComputedOnTheCpu) {
  const Variable x = data("x", {3});
  const Variable loss = layers::mean(layers::fc(x, 2));
  const Variable rate = layers::exponential_decay(0.1, 1, 0.5);
  optimizer::SGD({.learning_rate = rate}).minimize(loss);
  expect_bits_of_cpu({{"x", random_tensor({2, 3}, 1)}}, {rate});
}

// They come before the shards of a step, and read nothing that is fed.
TEST_F(Places, WithASchedulesOpsFeedsCrossOnce) {
  const Variable x = data("x", {3});
  const Variable loss = layers::mean(layers::fc(x, 2));
  optimizer::SGD({.learning_rate = layers::exponential_decay(0.1, 1, 0.5)}).minimize(loss);
  Executor device = device_executor([](const std::string&) { return true; });
  device.run(startup_);
  const Feed feed = {{"x", random_tensor({2, 3}, 1)}};
  device.run(main_, feed);
  const uint64_t before = testing::device_bytes_copied();
  device.run(main_, feed);
  const size_t fed = 6 * sizeof(double);
  EXPECT_GT(testing::device_bytes_copied(), before + fed);  // and the rate
  EXPECT_LT(testing::device_bytes_copied(), before + 2 * fed);
}

TEST_F(Places, ALoopCountsOnEitherPlace) {
  const Variable limit = index(5);
  const Variable i = index(0);
  const Variable sum = layers::fill_constant({1}, DType::kInt64, 0);
  const Variable holds = layers::less_than(i, limit);
  layers::While loop(holds);
  loop.block([&] {
    layers::assign(sum + i, sum);
    layers::increment(i);
    layers::assign(layers::less_than(i, limit), holds);
  });
  expect_bits_of_cpu({}, {sum, i});
}

TEST_F(Places, GradientsGoThroughTheBranchThatRan) {
  const Variable x = data("x", {3});
  const Variable h = layers::fc(x, 4, {.act = "tanh"});
  const Variable zero = layers::fill_constant({1}, DType::kFloat64, 0);
  const Variable picked = layers::cond(
      layers::less_than(layers::reduce_sum(x), zero),
      [&] { return std::vector<Variable>{layers::fc(h, 4)}; },
      [&] { return std::vector<Variable>{layers::square(h)}; })[0];
  expect_gradients_of_cpu(loss_of(picked + h), {{"x", random_tensor({2, 3}, 21, 0.1, 1)}});
}

TEST_F(Places, GradientsGoBackThroughStatesThatALoopRewrites) {
  const Variable x = data("x", {3});
  const auto results = layers::while_loop(
      [](const std::vector<Variable>& state) { return layers::less_than(state[0], index(3)); },
      [&](const std::vector<Variable>& state) {
        return std::vector<Variable>{state[0] + index(1), layers::tanh(layers::fc(state[1], 3))};
      },
      {index(0), layers::fc(x, 3)});
  expect_gradients_of_cpu(loss_of(results[1]), {{"x", random_tensor({2, 3}, 22)}});
}

TEST_F(Places, GradientsGoThroughArrays) {
  const Variable x = data("x", {3});
  const Variable i = index(0);
  const Variable limit = index(3);
  const Variable states = layers::array_write(layers::fc(x, 3, {.act = "tanh"}), i);
  const Variable holds = layers::less_than(i, limit);
  layers::While loop(holds);
  loop.block([&] {
    const Variable before = layers::array_read(states, i);
    layers::increment(i);
    layers::array_write(layers::fc(before, 3, {.act = "tanh"}), i, states);
    layers::assign(layers::less_than(i, limit), holds);
  });
  expect_gradients_of_cpu(loss_of(layers::tensor_array_to_tensor(states, 0).out),
                          {{"x", random_tensor({2, 3}, 23)}});
}

Variable recurrent_net(const Variable& x) {
  layers::StaticRNN rnn;
  rnn.step([&] {
    const Variable word = rnn.step_input(x);
    const Variable before = rnn.memory({.shape = {-1, 5}, .batch_ref = word});
    const Variable hidden = layers::fc({word, before}, 5, {.act = "tanh"});
    rnn.update_memory(before, hidden);
    rnn.step_output(hidden);
  });
  return rnn()[0];
}

TEST_F(Places, ARecurrentNetGathersItsSteps) {
  const Variable out = recurrent_net(data("x", {4, -1, 3}));
  expect_bits_of_cpu({{"x", random_tensor({4, 2, 3}, 24)}}, {out});
}

TEST_F(Places, ARecurrentNetPassesGradientsBack) {
  const Variable out = recurrent_net(data("x", {4, -1, 3}));
  expect_gradients_of_cpu(loss_of(out), {{"x", random_tensor({4, 2, 3}, 24)}});
}

TEST_F(Places, SequencesKeepTheirStructure) {
  const Variable x = data("x", {3}, 1);
  const Variable pooled = layers::sequence_pool(layers::fc(x, 4), "sum");
  expect_gradients_of_cpu(loss_of(pooled), {{"x", random_sequences({2, 0, 3}, 3, 25)}});
}

// A table of 6 rows whose gradient is rows.
Variable looked_up(const Variable& words, int64_t padding_idx = -1) {
  return layers::embedding(words, {6, 3},
                           {.is_sparse = true,
                            .padding_idx = padding_idx,
                            .param_attr = {.name = "table"},
                            .dtype = DType::kFloat64});
}
Tensor some_words() {
  return Tensor::from<int64_t>({4, 0, 4, 2, 4, 0}, {6, 1});
}

TEST_F(Places, ATableWithSparseGradientsIsOnTheDevice) {
  const Variable words = ids("words", {1});
  optimizer::SGD({.learning_rate = 0.1}).minimize(loss_of(looked_up(words, 2)));
  Executor device =
      device_executor([](const std::string&) { return true; }, {.strict_place = true});
  device.run(startup_);
  device.run(main_, {{"words", some_words()}});
  EXPECT_EQ(device.scope().tensor("table").place(), CUDAPlace(0));
}

TEST_F(Places, ATableThatIsUpdatedOnTheCpuIsLookedUpThere) {
  const Variable words = ids("words", {1});
  optimizer::SGD({.learning_rate = 0.1}).minimize(loss_of(looked_up(words)));
  for (const char* missing : {"sgd", "lookup_table_grad"}) {
    SCOPED_TRACE(missing);
    Executor device = device_executor([missing](const std::string& op) { return op != missing; });
    device.run(startup_);
    device.run(main_, {{"words", some_words()}});
    EXPECT_EQ(device.scope().tensor("table").place(), CPUPlace());
  }
}

TEST_F(Places, SparseGradientsAreClippedAndMixed) {
  const Variable words = ids("words", {1});
  const Variable dense =
      layers::embedding(words, {6, 3}, {.param_attr = {.name = "table"}, .dtype = DType::kFloat64});
  const Variable other = layers::embedding(
      words, {6, 3},
      {.is_sparse = true, .param_attr = {.name = "other"}, .dtype = DType::kFloat64});
  const Variable loss = loss_of(looked_up(words, 0) + dense + layers::square(other) + other);
  optimizer::Adam(
      {.learning_rate = 0.1, .lazy_mode = true, .grad_clip = clip::GradientClipByGlobalNorm(0.01)})
      .minimize(loss);
  expect_bits_of_cpu({{"words", some_words()}}, {loss, Fetch("table"), Fetch("other")});
}

TEST_F(Places, ProfilesShowWhereOpsRanAndTheCopies) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "places_test_profile";
  std::filesystem::remove_all(folder);
  const Variable x = data("x", {3});
  const Variable h = layers::square(layers::tanh(layers::square(x))) + layers::tanh(x);
  {
    Executor device = device_executor([](const std::string& op) { return op == "tanh"; },
                                      {.profile = folder.string()});
    for (int step = 0; step < 2; ++step) {
      device.run(main_, {{"x", random_tensor({2, 3}, 1)}}, {h});
    }
  }
  std::map<std::string, std::vector<std::string>> files;  // their lines
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    files[entry.path().extension()] = split(text.str(), '\n');
  }
  using ::testing::Contains;
  using ::testing::ContainsRegex;
  for (const char* row : {"feed +to cuda:0 +2 ", "memcpy +to cuda:0 +2 ", "memcpy +to cpu +4 ",
                          "tanh +cuda:0 +4 ", "square +cpu +4 "}) {
    EXPECT_THAT(files[".txt"], Contains(ContainsRegex(row)));
  }
  EXPECT_THAT(files[".txt"],
              ::testing::SizeIs(8));  // with the sum, the heading, and an end of line
  EXPECT_THAT(files[".json"], Contains(ContainsRegex("\"memcpy\".*\"place\": \"to cpu\"")));
  std::filesystem::remove_all(folder);
}

TEST_F(Places, MemoryThatIsUsedUpIsToldWithTheOpAndWhoHasIt) {
  const Variable x = data("x", {100});
  const Variable h = layers::fc(x, 50, {.act = "tanh"});
  Executor device = device_executor([](const std::string&) { return true; });
  device.run(startup_);
  const Tensor small = random_tensor({2, 100}, 1);
  device.run(main_, {{"x", small}}, {h});
  const Tensor large = random_tensor({1000, 100}, 1);
  testing::limit_device_memory(large.bytes() + large.bytes() / 2);
  expect_error(
      [&] {
        device.run(main_, {{"x", large}}, {h});
      },
      ErrorCode::kNoMemory,
      {"cuda:0", "mul(", "float64[1000, 100]", "fc_0.w_0' 40000 bytes", "smaller batches"});
  testing::limit_device_memory(std::numeric_limits<size_t>::max());
  EXPECT_EQ(device.run(main_, {{"x", small}}, {h})[0].shape(), (Shape{2, 50}));
}

TEST_F(Places, ADevicesElementsAreNotReadOnTheHost) {
  const Tensor tensor(DType::kFloat32, {2}, CUDAPlace(1));
  expect_error([&] { (void)tensor.data<float>(); }, ErrorCode::kInvalidArgument,
               {"cuda:1", "copy_to(CPUPlace())"});
}

TEST_F(Places, HaveNames) {
  EXPECT_EQ(place_named("cpu"), CPUPlace());
  EXPECT_EQ(place_named("gpu"), CUDAPlace(0));
  EXPECT_EQ(place_named("gpu:3"), CUDAPlace(3));
  EXPECT_EQ(place_named("cuda:1"), CUDAPlace(1));
  for (const char* wrong : {"", "gpu:", "gpu:-1", "gpu:x", "cpu:0", "gpus"}) {
    expect_error([&] { place_named(wrong); }, ErrorCode::kInvalidArgument, {"gpu:N"});
  }
}

TEST_F(Places, OfAProcessAreThoseThatItsLauncherGaveIt) {
  EXPECT_THAT(cuda_places(), ElementsAre(CUDAPlace(0), CUDAPlace(1)));
  setenv("FLAGS_selected_gpus", "1", 1);
  EXPECT_EQ(place_named("gpu"), CUDAPlace(1));
  EXPECT_THAT(cuda_places(), ElementsAre(CUDAPlace(1)));
  EXPECT_THAT(cuda_places({4}), ElementsAre(CUDAPlace(4)));
  setenv("FLAGS_selected_gpus", "first", 1);
  expect_error([] { cuda_places(); }, ErrorCode::kEnvironment, {"FLAGS_selected_gpus", "first"});
  unsetenv("FLAGS_selected_gpus");
}

}  // namespace
}  // namespace fleet::fluid

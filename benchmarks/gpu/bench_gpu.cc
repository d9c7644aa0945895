// Steps a second of a net on a GPU: forward, backward and the update, on one batch that stays.
// Prints a line of JSON; torch_steps.py prints the same of PyTorch, and run.py puts both together.
#include <boost/program_options.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "fluid/core/device_memory.h"
#include "fluid/executor/executor.h"
#include "fluid/executor/places.h"
#include "fluid/layers/layers.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

namespace layers = fluid::layers;
using fluid::Variable;

struct Options {
  std::string net;
  std::string optimizer;
  std::string place;
  std::string amp;
  int64_t rows = 64;
  double seconds = 2;
  bool device_feed = false;
  bool graph = false;
};

// What is fed, and the loss that comes of it.
struct Model {
  fluid::Shape input;
  int64_t classes = 10;
  int64_t labels = 1;                    // of a row
  bool words = false;                    // x is indices of words, below `classes`
  Variable (*build)(const Variable& x);  // logits
};

template <int kIn, int kHidden>
Variable mlp(const Variable& x) {
  const auto first = layers::fc(x, kHidden, {.act = "relu"});
  return layers::fc(layers::fc(first, kHidden, {.act = "relu"}), 10);
}

Variable lenet(const Variable& x) {
  Variable last = x;
  for (const int filters : {20, 50}) {
    last = layers::conv2d(last, filters, 5, {.act = "relu"});
    last = layers::pool2d(last, {.pool_size = 2, .pool_type = "max", .pool_stride = 2});
  }
  return layers::fc(layers::fc(last, 500, {.act = "relu"}), 10);
}

Variable conv_norm(const Variable& x, int filters, int size, int stride, const std::string& act) {
  const auto conv = layers::conv2d(
      x, filters, size, {.stride = stride, .padding = size / 2, .bias_attr = {.omit = true}});
  return layers::batch_norm(conv, {.act = act});
}

Variable bottleneck(const Variable& x, int filters, int stride) {
  const auto narrow = conv_norm(x, filters, 1, 1, "relu");
  const auto middle = conv_norm(narrow, filters, 3, stride, "relu");
  const auto wide = conv_norm(middle, 4 * filters, 1, 1, "");
  const bool same = stride == 1 && x.shape()[1] == 4 * filters;
  const auto around = same ? x : conv_norm(x, 4 * filters, 1, stride, "");
  return layers::relu(layers::elementwise_add(wide, around));
}

Variable resnet50(const Variable& x) {
  Variable last = conv_norm(x, 64, 7, 2, "relu");
  last = layers::pool2d(last,
                        {.pool_size = 3, .pool_type = "max", .pool_stride = 2, .pool_padding = 1});
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < blocks[stage]; ++i) {
      last = bottleneck(last, 64 << stage, i == 0 && stage > 0 ? 2 : 1);
    }
  }
  const auto pooled = layers::pool2d(last, {.pool_type = "avg", .global_pooling = true});
  return layers::fc(pooled, 1000);
}

constexpr int64_t kWidth = 512;
constexpr int64_t kHeads = 8;
constexpr int64_t kWords = 32000;

Variable heads_of(const Variable& x) {
  const auto projected = layers::fc(x, kWidth, {.num_flatten_dims = 2});
  const auto split = layers::reshape(projected, {0, 0, kHeads, kWidth / kHeads});
  return layers::transpose(split, {0, 2, 1, 3});
}

Variable encoder(const Variable& x) {
  const auto keys = heads_of(x);
  const auto scores = layers::matmul(heads_of(x), keys, {.transpose_y = true, .alpha = 0.125F});
  const auto mixed = layers::matmul(layers::softmax(scores), heads_of(x));
  const auto joined = layers::reshape(layers::transpose(mixed, {0, 2, 1, 3}), {0, 0, kWidth});
  const auto attention = layers::fc(joined, kWidth, {.num_flatten_dims = 2});
  const auto middle =
      layers::layer_norm(layers::elementwise_add(x, attention), {.begin_norm_axis = 2});
  const auto inner = layers::gelu(layers::fc(middle, 4 * kWidth, {.num_flatten_dims = 2}));
  const auto out = layers::fc(inner, kWidth, {.num_flatten_dims = 2});
  return layers::layer_norm(layers::elementwise_add(middle, out), {.begin_norm_axis = 2});
}

Variable transformer(const Variable& x) {
  Variable last = fluid::embedding(x, {kWords, kWidth});
  for (int i = 0; i < 6; ++i) last = encoder(last);
  return layers::reshape(layers::fc(last, kWords, {.num_flatten_dims = 2}), {-1, kWords});
}

Model model_of(const std::string& name) {
  if (name == "mlp") return {.input = {784}, .build = mlp<784, 512>};
  if (name == "small_mlp") return {.input = {64}, .build = mlp<64, 64>};
  if (name == "lenet") return {.input = {1, 28, 28}, .build = lenet};
  if (name == "resnet50") return {.input = {3, 224, 224}, .classes = 1000, .build = resnet50};
  if (name == "transformer") {
    return {.input = {128}, .classes = kWords, .labels = 128, .words = true, .build = transformer};
  }
  throw_error(ErrorCode::kInput, {.what = "no such net",
                                  .where = "--net",
                                  .expected = "mlp, small_mlp, lenet, resnet50 or transformer",
                                  .got = name});
}

fluid::Feed batch_of(const Model& model, int64_t rows) {
  fluid::Shape shape{rows};
  for (const int64_t dim : model.input) shape.push_back(dim);
  fluid::Tensor x(model.words ? fluid::DType::kInt64 : fluid::DType::kFloat32, shape);
  const RandomKey key = RandomKey::of(1, "batch");
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float drawn = uniform_float(key, static_cast<uint64_t>(i));
    if (model.words) {
      x.data<int64_t>()[i] = static_cast<int64_t>(drawn * static_cast<float>(model.classes));
    } else {
      x.data<float>()[i] = drawn;
    }
  }
  fluid::Tensor y(fluid::DType::kInt64, {rows * model.labels, 1});
  for (int64_t i = 0; i < y.numel(); ++i) y.data<int64_t>()[i] = i % model.classes;
  return {{"x", x}, {"y", y}};
}

int64_t parameters_of(const fluid::Program& program) {
  int64_t count = 0;
  for (const fluid::VarDesc* parameter : program.global_block().parameters()) {
    count += parameter->shape.numel();
  }
  return count;
}

void minimize(const Options& options, const Variable& loss) {
  fluid::optimizer::Adam adam({.learning_rate = 0.0001F});
  fluid::optimizer::Momentum momentum({.learning_rate = 0.001F, .momentum = 0.9F});
  fluid::optimizer::Optimizer& chosen =
      options.optimizer == "adam" ? static_cast<fluid::optimizer::Optimizer&>(adam) : momentum;
  if (options.amp == "off") {
    chosen.minimize(loss);
  } else {
    fluid::mixed_precision::decorate(chosen, {.dtype = fluid::parse_dtype(options.amp)})
        .minimize(loss);
  }
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(const Options& options) {
  const Model model = model_of(options.net);
  const auto x =
      layers::data("x", model.input, model.words ? fluid::DType::kInt64 : fluid::DType::kFloat32);
  const auto y = layers::data("y", {1}, fluid::DType::kInt64);
  const auto loss = layers::mean(layers::softmax_with_cross_entropy(model.build(x), y));
  minimize(options, loss);
  const fluid::Place place = fluid::place_named(options.place);
  fluid::Executor executor(place, {.cuda_graph = options.graph});
  executor.run(fluid::default_startup_program());
  fluid::Feed feed = batch_of(model, options.rows);
  if (options.device_feed) {
    for (auto& [name, tensor] : feed) tensor = tensor.copy_to(place);
  }
  const fluid::Program& program = fluid::default_main_program();
  const float first = executor.run(program, feed, {loss})[0].item<float>();
  for (int i = 0; i < 5; ++i) executor.run(program, feed);
  if (!place.is_cpu()) fluid::mark_device(place)->wait();
  const auto begin = std::chrono::steady_clock::now();
  int64_t steps = 0;
  while (seconds_since(begin) < options.seconds) {
    for (int i = 0; i < 5; ++i) executor.run(program, feed);
    if (!place.is_cpu()) fluid::mark_device(place)->wait();
    steps += 5;
  }
  const double seconds = seconds_since(begin);
  const float last = executor.run(program, feed, {loss})[0].item<float>();
  std::printf(
      "{\"net\": \"%s\", \"by\": \"fleet%s%s\", \"rows\": %lld, \"parameters\": %lld, "
      "\"steps_per_s\": %.2f, \"first_loss\": %.4f, \"last_loss\": %.4f, \"steps\": %lld}\n",
      options.net.c_str(), options.graph ? " graph" : "",
      options.amp == "off" ? "" : (" " + options.amp).c_str(), static_cast<long long>(options.rows),
      static_cast<long long>(parameters_of(program)), static_cast<double>(steps) / seconds,
      static_cast<double>(first), static_cast<double>(last), static_cast<long long>(steps));
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  fleet::benchmarks::Options options;
  po::options_description flags("Steps a second of a net, as a line of JSON");
  auto add = flags.add_options();
  add("help", "print this text");
  add("net", po::value(&options.net)->required(), "mlp, small_mlp, lenet, resnet50 or transformer");
  add("rows", po::value(&options.rows)->default_value(64), "rows of a batch");
  add("optimizer", po::value(&options.optimizer)->default_value("momentum"), "momentum or adam");
  add("amp", po::value(&options.amp)->default_value("off"),
      "mixed precision: off, float16 or bfloat16");
  add("place", po::value(&options.place)->default_value("gpu:0"), "cpu, gpu or gpu:N");
  add("seconds", po::value(&options.seconds)->default_value(2), "how long to measure");
  add("graph", po::bool_switch(&options.graph), "steps are recorded and repeated (cuda_graph)");
  add("device_feed", po::bool_switch(&options.device_feed), "the batch is on the device already");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    if (given.contains("help")) {
      std::cout << flags << '\n';
      return 0;
    }
    po::notify(given);
    fleet::benchmarks::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_gpu: %s\n", error.what());
    return 1;
  }
  return 0;
}

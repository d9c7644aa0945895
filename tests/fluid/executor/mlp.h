// The quick start's net, for tests.
#pragma once

#include <string>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::testing {

struct Mlp {
  Program main;
  Program startup;
  std::string cost;
  std::string probability;

  explicit Mlp(uint64_t seed = 7, double rate = 0.1) {
    main.set_random_seed(seed);
    startup.set_random_seed(seed);
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {32});
    const Variable y = layers::data("y", {1}, DType::kInt64);
    const Variable first = layers::fc(x, 128, {.act = "tanh"});
    const Variable second = layers::fc(first, 128, {.act = "tanh"});
    const Variable out = layers::fc(second, 2, {.act = "softmax"});
    const Variable loss = layers::mean(layers::cross_entropy(out, y));
    optimizer::SGD({.learning_rate = rate}).minimize(loss);
    cost = loss.name();
    probability = out.name();
  }
};

// A batch whose label is whether the first two features rise.
inline Feed batch(int64_t rows, uint64_t index) {
  Tensor x(DType::kFloat32, Shape{rows, 32});
  Tensor y(DType::kInt64, Shape{rows, 1});
  const RandomKey key = RandomKey::of(99, "batch");
  for (int64_t i = 0; i < rows * 32; ++i) {
    x.data<float>()[i] = uniform_float(key, static_cast<uint64_t>(i), index);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x.data<float>() + i * 32;
    y.data<int64_t>()[i] = row[0] < row[1] ? 1 : 0;
  }
  return {{"x", x}, {"y", y}};
}

}  // namespace fleet::fluid::testing

// Nets of a test's own, run in float64; gradients of their parameters against finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fluid/backward/backward.h"
#include "fluid/executor/executor.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {

inline Tensor random_tensor(const Shape& shape, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Tensor tensor(DType::kFloat64, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<double>()[i] = draw(engine);
  return tensor;
}

// Offsets of sequences with these lengths.
inline LoD sequences(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return {offsets};
}

inline Tensor random_sequences(const std::vector<int64_t>& lengths, int64_t width, unsigned seed) {
  const LoD lod = sequences(lengths);
  Tensor tensor = random_tensor({lod[0].back(), width}, seed);
  tensor.set_lod(lod);
  return tensor;
}

inline Tensor int_tensor(const std::vector<int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

class GradientCheck : public NetFixture {
 protected:
  Variable data(const std::string& name, const Shape& shape, int lod_level = 0) {
    return layers::data(name, shape, DType::kFloat64, {.lod_level = lod_level});
  }
  Variable ids(const std::string& name, const Shape& shape, int lod_level = 0) {
    return layers::data(name, shape, DType::kInt64, {.lod_level = lod_level});
  }

  // One number that depends on every element of x, each with a weight of its own.
  Variable loss_of(const Variable& x) { return layers::mean(layers::square(x) + x * 0.7); }

  double run_loss(const Variable& loss, const Feed& feed) {
    return executor_.run(main_, feed, {loss})[0].item<double>();
  }

  // The gradient of a parameter as the last run left it, dense.
  Tensor gradient_of(const VarDesc& param) {
    const Value* value = executor_.scope().find(param.name + "@GRAD");
    if (value == nullptr) return {};
    if (const auto* dense = std::get_if<Tensor>(value)) return *dense;
    Tensor whole = Tensor::zeros(DType::kFloat64, param.shape);
    const auto& rows = std::get<SelectedRows>(*value);
    const int64_t width = param.shape.numel(1, param.shape.rank());
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      for (int64_t k = 0; k < width; ++k) {
        whole.data<double>()[rows.rows[i] * width + k] +=
            rows.value.values<double>()[i * static_cast<size_t>(width) + static_cast<size_t>(k)];
      }
    }
    return whole;
  }

  // Gradients of all parameters of the net that was built, at most so many elements of each.
  void expect_gradients(const Variable& loss, const Feed& feed, int64_t elements = 10) {
    const auto pairs = append_backward(loss);
    ASSERT_FALSE(pairs.empty());
    for (const ParamGrad& pair : pairs) pair.grad.set_persistable(true);
    executor_.run(startup_);
    run_loss(loss, feed);
    std::map<std::string, Tensor> grads;
    for (const ParamGrad& pair : pairs) {
      grads[pair.param.name()] = gradient_of(pair.param.desc()).clone();
    }
    for (const ParamGrad& pair : pairs) {
      const std::string& name = pair.param.name();
      Tensor& param = executor_.scope().tensor(name);
      ASSERT_EQ(param.dtype(), DType::kFloat64) << name;
      const int64_t step = std::max<int64_t>(param.numel() / elements, 1);
      for (int64_t i = 0; i < param.numel(); i += step) {
        constexpr double kEpsilon = 1e-6;
        const double saved = param.data<double>()[i];
        param.data<double>()[i] = saved + kEpsilon;
        const double above = run_loss(loss, feed);
        param.data<double>()[i] = saved - kEpsilon;
        const double below = run_loss(loss, feed);
        param.data<double>()[i] = saved;
        const double expected = (above - below) / (2 * kEpsilon);
        const double got = grads[name].data<double>()[i];
        EXPECT_NEAR(got, expected, 1e-7 + 1e-5 * std::abs(expected)) << name << "[" << i << "]";
      }
    }
  }

  Executor executor_;
};

}  // namespace fleet::fluid

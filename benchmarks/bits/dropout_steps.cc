#include "benchmarks/bits/dropout_steps.h"

#include <bit>
#include <memory>
#include <utility>

#include "base/philox.h"
#include "benchmarks/handwritten/arithmetic.h"
#include "fluid/kernels/op_library.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/nn/dropout.h"
#include "fluid/optimizer/optimizer.h"

namespace fleet::benchmarks {
namespace {

constexpr int kLanes = 16;
constexpr double kDropped = 0.5;

struct Generators {
  uint32_t state[4][kLanes];

  Generators() {
    const RandomKey key = RandomKey::of(1, "generators");
    for (uint64_t lane = 0; lane < kLanes; ++lane) {
      const auto block = philox(key, lane, 0);
      for (size_t word = 0; word < 4; ++word) state[word][lane] = block[word];
    }
  }
};

inline uint32_t rotated(uint32_t x, int by) {
  return x << by | x >> (32 - by);
}

FLEET_WIDEST void fill(Generators& generators, uint32_t threshold, uint8_t* mask, int64_t n) {
  auto& s = generators.state;
  for (int64_t i = 0; i < n; i += kLanes) {
    uint8_t kept[kLanes];
#pragma omp simd
    for (int k = 0; k < kLanes; ++k) {
      const uint32_t word = rotated(s[0][k] + s[3][k], 7) + s[0][k];
      const uint32_t shifted = s[1][k] << 9;
      s[2][k] ^= s[0][k];
      s[3][k] ^= s[1][k];
      s[1][k] ^= s[2][k];
      s[0][k] ^= s[3][k];
      s[2][k] ^= shifted;
      s[3][k] = rotated(s[3][k], 11);
      kept[k] = word >= threshold ? 1 : 0;
    }
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    for (int64_t k = 0; k < count; ++k) mask[i + k] = kept[k];
  }
}

FLEET_WIDEST void apply(const float* in, const uint8_t* mask, float* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(in[i]) & -uint32_t{mask[i]});
  }
}

std::unique_ptr<fluid::Prepared> prepare_sequential(fluid::PrepareContext& context) {
  const float dropped = context.attrs<fluid::DropoutAttrs>().dropout_prob;
  const auto threshold = static_cast<uint32_t>(static_cast<double>(dropped) * 4294967296.0);
  const fluid::Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, fluid::DType::kFloat32);
  const int mask = context.set_output("Mask", shape, fluid::DType::kUInt8);
  const auto generators = std::make_shared<Generators>();
  return fluid::make_prepared([=, n = shape.numel()](const fluid::KernelContext& c) {
    fill(*generators, threshold, c.out<uint8_t>(mask), n);
    apply(c.in<float>(x), c.out<uint8_t>(mask), c.out<float>(out), n);
  });
}

std::shared_ptr<const fluid::OpLibrary> library_of(DropoutNumbers numbers) {
  auto library = std::make_shared<fluid::OpLibrary>();
  if (numbers == DropoutNumbers::kSequential) {
    library->kernels().add_first("dropout", fluid::DeviceKind::kCpu, fluid::DType::kFloat32,
                                 {.name = "sequential", .prepare = prepare_sequential});
  }
  return library;
}

}  // namespace

DropoutSteps::DropoutSteps(DropoutNumbers numbers) {
  namespace layers = fluid::layers;
  const fluid::ProgramGuard programs(net_.main, net_.startup);
  const fluid::unique_name::Guard names;
  net_.main.set_op_library(library_of(numbers));
  fluid::Variable last = layers::data("x", {32}, fluid::DType::kFloat32);
  const auto y = layers::data("y", {1}, fluid::DType::kInt64);
  for (int layer = 0; layer < 2; ++layer) {
    last = layers::dropout(layers::fc(last, 128, {.act = "tanh"}), kDropped);
  }
  const auto loss = layers::mean(layers::cross_entropy(layers::fc(last, 2, {.act = "softmax"}), y));
  fluid::optimizer::SGD({.learning_rate = 0.01}).minimize(loss);
  net_.cost = loss.name();
  net_.feeds = make_batches("mlp", 32);
  executor_.run(net_.startup);
}

}  // namespace fleet::benchmarks

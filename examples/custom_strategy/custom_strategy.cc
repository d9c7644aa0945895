// A strategy from outside the library: all-reduce training whose gradients are rounded to bfloat16
// before they are exchanged. The library's strategy rewrites the programs; ours puts itself between
// them and its runtime.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

// The nearest value with 8 significant bits; ties go to even.
float round_to_bfloat16(float value) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(rounded & 0xffff0000);
}

class RoundingRuntime final : public strategies::ForwardingRuntime {
 public:
  using ForwardingRuntime::ForwardingRuntime;

  // What is ours: an op of the program, before the library's runtime sees it.
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    if (call.op.type == "c_allreduce_sum") {
      auto& gradient = std::get<fluid::Tensor>(*call.inputs[0]);
      float* values = gradient.data<float>();
      for (int64_t i = 0; i < gradient.numel(); ++i) values[i] = round_to_bfloat16(values[i]);
    }
    return inner().run(call);
  }
};

class RoundedAllReduce final : public strategies::ForwardingStrategy {
 public:
  RoundedAllReduce() : ForwardingStrategy(strategies::GradAllReduceStrategy{}.make()) {}

  std::string_view name() const override { return "rounded_all_reduce"; }
  strategies::StrategyResult rewrite(const strategies::StrategyInput& input) const override {
    auto result = inner().rewrite(input);
    result.runtime = std::make_shared<RoundingRuntime>(std::move(result.runtime));
    return result;
  }
};

// y = 2 x - 1 on rows of this worker.
fluid::Feed batch() {
  constexpr int kRows = 16;
  std::vector<float> x(kRows);
  std::vector<float> y(kRows);
  for (int row = 0; row < kRows; ++row) {
    const int at = row * fleet::worker_num() + fleet::worker_index();
    x[row] = static_cast<float>(at) / static_cast<float>(kRows * fleet::worker_num());
    y[row] = 2 * x[row] - 1;
  }
  return {{"x", fluid::Tensor::from(x, {kRows, 1})}, {"y", fluid::Tensor::from(y, {kRows, 1})}};
}

int train() {
  auto x = fluid::layers::data("x", {1}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kFloat32);
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.5});

  fleet::init(role_maker::PaddleCloudRoleMaker());
  strategies::DistributedStrategy strategy;  // alone: the library's own choice
  if (fleet::mode() == "collective") {
    strategy = std::shared_ptr<const strategies::Strategy>(std::make_shared<RoundedAllReduce>());
  }
  auto optimizer = fleet::distributed_optimizer(sgd, strategy);
  optimizer.minimize(cost);
  fleet::init_worker();
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  float loss = 0;
  for (int step = 0; step < 200; ++step) {
    loss = exe.run(fluid::default_main_program(), batch(), {cost})[0].item<float>();
  }
  fleet::stop_worker();
  std::printf("%s: loss after 200 steps: %g\n", fleet::mode().c_str(), loss);
  return loss < 1e-3F ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

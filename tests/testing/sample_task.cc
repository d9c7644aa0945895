#include "tests/testing/sample_task.h"

#include <vector>

#include "base/hash.h"

namespace fleet::testing {
namespace {

using transpiler::SampleNet;

constexpr int kBatch = 8;

std::string loss_of(const fluid::Program& main) {
  for (const auto& op : main.global_block().ops()) {
    if (op->role == (fluid::OpRole::kForward | fluid::OpRole::kLoss)) {
      return op->output_names().front();
    }
  }
  return {};
}

fluid::Tensor numbers(uint64_t key, int64_t begin, int64_t end, int64_t width) {
  std::vector<float> values;
  for (auto i = begin * width; i < end * width; ++i) {
    const uint64_t drawn = mix64(key * 1000003 + static_cast<uint64_t>(i));
    values.push_back(static_cast<float>(drawn % 1000) / 1000.0F - 0.5F);
  }
  return fluid::Tensor::from(values, {end - begin, width});
}

// A sequence of 1 to 6 for each row, the same whichever rows are fed with it.
fluid::Tensor sequences(uint64_t key, int64_t begin, int64_t end, int64_t width) {
  std::vector<float> values;
  std::vector<int64_t> offsets{0};
  for (int64_t row = begin; row < end; ++row) {
    const uint64_t drawn = mix64(key * 1000003 + static_cast<uint64_t>(row));
    const auto length = static_cast<int64_t>(1 + drawn % 6);
    const fluid::Tensor steps = numbers(drawn, 0, length, width);
    const auto own = steps.values<float>();
    values.insert(values.end(), own.begin(), own.end());
    offsets.push_back(offsets.back() + length);
  }
  fluid::Tensor made = fluid::Tensor::from(values, {offsets.back(), width});
  made.set_lod({offsets});
  return made;
}

}  // namespace

TrainingTask sample_task(const SampleNet& net) {
  TrainingTask task;
  task.main = &net.main;
  task.startup = &net.startup;
  task.loss = loss_of(net.main);
  task.steps = 3;
  task.feed = [&net](int step, int begin, int end, int parts) {
    const int64_t width = net.main.global_block().var("x").shape[-1];
    const int64_t first = kBatch / parts * begin;
    const int64_t last = kBatch / parts * end;
    const auto key = static_cast<uint64_t>(step);
    fluid::Feed feed{{"x", numbers(key, first, last, width)},
                     {"y", numbers(key + 7777, first, last, 1)}};
    const fluid::VarDesc* steps = net.main.global_block().find_var("steps");
    if (steps != nullptr) {
      feed.emplace_back("steps", sequences(key + 999, first, last, steps->shape[-1]));
    }
    return feed;
  };
  return task;
}

}  // namespace fleet::testing

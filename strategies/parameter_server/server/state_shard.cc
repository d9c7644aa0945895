#include "strategies/parameter_server/server/state_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"

namespace fleet::strategies {

void detach(fluid::Tensor& tensor, fluid::Tensor& spare) {
  if (tensor.buffer().unique()) return;
  const bool fits = spare.initialized() && spare.buffer().unique() &&
                    spare.dtype() == tensor.dtype() && spare.shape() == tensor.shape();
  if (!fits) spare = fluid::Tensor(tensor.dtype(), tensor.shape(), tensor.place());
  std::memcpy(spare.raw(), tensor.raw(), tensor.bytes());
  std::swap(tensor, spare);
}

DenseShard::DenseShard(DenseShardSpec spec, fluid::Scope& scope, Rule rule, int stages)
    : gradient_(&scope.var(spec.gradient)), rule_(std::move(rule)), stages_(stages) {
  slots_.push_back({spec.value, &scope.tensor(spec.value), {}});
  for (const auto& name : spec.state) slots_.push_back({name, &scope.tensor(name), {}});
}

void DenseShard::own() {
  for (auto& slot : slots_) detach(*slot.tensor, slot.spare);
}

void DenseShard::prepare(const StepUpdate& update) {
  own();
  rule_(update);
}

void DenseShard::apply(const StepUpdate& update) {
  own();
  rule_({update.step, update.shards, stages_ - 1});
  step_ = update.step;
}

ShardSnapshot DenseShard::snapshot() const {
  ShardSnapshot snapshot;
  snapshot.step = step_;
  for (const auto& slot : slots_) {
    const auto* begin = reinterpret_cast<const uint8_t*>(std::as_const(*slot.tensor).raw());
    snapshot.values.emplace_back(slot.name,
                                 std::vector<uint8_t>(begin, begin + slot.tensor->bytes()));
  }
  return snapshot;
}

void DenseShard::restore(const ShardSnapshot& snapshot) {
  const auto matches = [](const Slot& slot, const auto& saved) {
    return slot.name == saved.first && slot.tensor->bytes() == saved.second.size();
  };
  if (!std::equal(slots_.begin(), slots_.end(), snapshot.values.begin(), snapshot.values.end(),
                  matches)) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a snapshot does not fit the slice that it is restored into",
                 .where = slots_.front().name,
                 .expected = "the same variables with the same sizes",
                 .got = str_cat(snapshot.values.size(), " variables"),
                 .fix = "restore the snapshot with the program and the placement that made it"});
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    detach(*slots_[i].tensor, slots_[i].spare);
    std::memcpy(slots_[i].tensor->raw(), snapshot.values[i].second.data(),
                snapshot.values[i].second.size());
  }
  step_ = snapshot.step;
}

}  // namespace fleet::strategies

#include "strategies/parameter_server/server/state_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fleet::strategies {

void detach(fluid::Tensor& tensor, fluid::Tensor& spare) {
  if (tensor.buffer().unique()) return;
  const bool fits = spare.initialized() && spare.buffer().unique() &&
                    spare.dtype() == tensor.dtype() && spare.shape() == tensor.shape();
  if (!fits) spare = fluid::Tensor(tensor.dtype(), tensor.shape(), tensor.place());
  std::memcpy(spare.raw(), tensor.raw(), tensor.bytes());
  std::swap(tensor, spare);
}

std::vector<std::shared_ptr<VersionReader>> VersionReaders::living() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<VersionReader>> living;
  std::erase_if(readers_, [&living](const std::weak_ptr<VersionReader>& each) {
    std::shared_ptr<VersionReader> reader = each.lock();
    if (!reader) return true;
    living.push_back(std::move(reader));
    return false;
  });
  return living;
}

void VersionReaders::show(const std::shared_ptr<VersionReader>& reader,
                          const fluid::Tensor& value) {
  const std::lock_guard lock(mutex_);
  if (updating_) {
    waiting_.push_back(reader);
    readers_.reserve(readers_.size() + waiting_.size());  // so that end_update() takes no memory
    return;
  }
  readers_.push_back(reader);
  reader->begin(value.raw());
}

void VersionReaders::moved(const std::byte* value) {
  for (const auto& reader : living()) reader->moved(value);
}

void VersionReaders::before_change(const std::vector<int64_t>* rows) {
  for (const auto& reader : living()) reader->before_change(rows);
}

void VersionReaders::begin_update() {
  const std::lock_guard lock(mutex_);
  updating_ = true;
}

void VersionReaders::end_update(const std::byte* value, bool done) {
  const std::lock_guard lock(mutex_);
  updating_ = false;
  for (auto& reader : std::exchange(waiting_, {})) {
    if (done) {
      readers_.push_back(reader);
      reader->begin(value);
      continue;
    }
    reader->lost({ErrorCode::kCancelled,
                  {.what = "an update failed, and left no version of the value",
                   .where = "parameter server",
                   .expected = {},
                   .got = {},
                   .fix = {}}});
  }
}

StateShard::StateShard(StateShardSpec spec, fluid::Scope& scope, Rule rule, int stages)
    : changes_(std::move(spec.changes)),
      gradient_(&scope.var(spec.gradient)),
      rule_(std::move(rule)),
      stages_(stages) {
  table_ = fluid::tables::table_of(scope.var(spec.value));
  if (table_ == nullptr) slots_.push_back({&scope.tensor(spec.value), {}});
  for (const auto& name : spec.state) slots_.push_back({&scope.tensor(name), {}});
}

void StateShard::own() {
  for (auto& slot : slots_) detach(*slot.tensor, slot.spare);
  if (table_ != nullptr) return;
  const std::byte* value = std::as_const(*slots_.front().tensor).raw();
  if (std::exchange(place_, value) != value) readers_.moved(value);
}

// From the first change on, until it is done, there is no version.
void StateShard::apply(const StepUpdate& update) {
  if (table_ != nullptr) {
    own();
    return rule_(update);
  }
  const auto stage = static_cast<size_t>(update.stage);
  const ValueChange change = stage < changes_.size() ? changes_[stage] : ValueChange::kAll;
  VersionReaders::Update going_on(readers_, *slots_.front().tensor);
  own();
  const auto* rows = std::get_if<fluid::SelectedRows>(gradient_);
  const bool named = change == ValueChange::kNamedRows && rows != nullptr;
  if (change != ValueChange::kNothing) readers_.before_change(named ? &rows->rows : nullptr);
  rule_(update);
  going_on.done();
}

fluid::Tensor& StateShard::writable() {
  own();
  readers_.before_change(nullptr);
  return *slots_.front().tensor;
}

}  // namespace fleet::strategies

#include "fluid/core/scope.h"

#include <atomic>
#include <utility>

#include "base/error.h"

namespace fleet::fluid {
namespace {

// Scopes count their changes from numbers that are far apart.
uint64_t first_revision() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(uint64_t{1} << 32, std::memory_order_relaxed);
}

}  // namespace

Scope::Scope(const Scope* parent) : parent_(parent), revision_(first_revision()) {}

Scope::Scope() : Scope(nullptr) {}

Scope::~Scope() = default;

Value& Scope::var(std::string_view name) {
  auto found = values_.find(name);
  if (found == values_.end()) {
    found = values_.emplace(std::string(name), std::make_unique<Value>()).first;
    ++revision_;
  }
  return *found->second;
}

Value* Scope::find_local(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : found->second.get();
}

Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    if (Value* value = scope->find_local(name)) return value;
  }
  return nullptr;
}

void Scope::erase(std::string_view name) {
  const auto found = values_.find(name);
  if (found == values_.end()) return;
  values_.erase(found);
  if (const auto kept = keepers_.find(name); kept != keepers_.end()) keepers_.erase(kept);
  ++revision_;
}

void Scope::set_keeper(std::string_view name, std::weak_ptr<Keeper> keeper) {
  (void)var(name);
  keepers_[std::string(name)] = std::move(keeper);
  ++revision_;
}

const std::weak_ptr<Keeper>* Scope::keeper(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    if (scope->find_local(name) == nullptr) continue;
    const auto found = scope->keepers_.find(name);
    return found == scope->keepers_.end() ? nullptr : &found->second;
  }
  return nullptr;
}

std::vector<std::string> Scope::local_names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) names.push_back(name);
  return names;
}

Tensor& Scope::tensor(std::string_view name) const {
  Value* value = find(name);
  if (value != nullptr) {
    if (auto* tensor = std::get_if<Tensor>(value)) return *tensor;
  }
  throw_error(ErrorCode::kInvalidProgram,
              {.what = value == nullptr ? "no such variable in the scope"
                                        : "the variable does not hold a dense tensor",
               .where = "variable '" + std::string(name) + "'",
               .expected = "a dense tensor",
               .got = value == nullptr ? "nothing" : "another kind of value, or no value yet",
               .fix = "run the startup program first, and check the name"});
}

}  // namespace fleet::fluid

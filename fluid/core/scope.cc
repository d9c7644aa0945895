#include "fluid/core/scope.h"

#include "base/error.h"

namespace fleet::fluid {

Value& Scope::var(std::string_view name) {
  auto found = values_.find(name);
  if (found == values_.end()) {
    found = values_.emplace(std::string(name), std::make_unique<Value>()).first;
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
  if (found != values_.end()) values_.erase(found);
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

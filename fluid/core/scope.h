// Named values, in a tree of scopes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/core/value.h"

namespace fleet::fluid {

// Who has the values of variables that a scope has only the shape of: the runtime of a job
// (fluid/kernels/comm_runtime.h), for tables whose rows are on servers.
class Keeper : public std::enable_shared_from_this<Keeper> {
 public:
  virtual ~Keeper() = default;
};

// A scope owns its values; their addresses stay the same until they are erased. A child sees its
// parent's values and must not outlive it. Looking up is safe from several threads as long as no
// one creates or erases in the same scope.
class Scope {
 public:
  Scope();
  explicit Scope(const Scope* parent);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  const Scope* parent() const { return parent_; }

  // The value of that name in this very scope, made empty when it is not there.
  Value& var(std::string_view name);
  // The nearest value of that name, here or in a parent; null when there is none.
  Value* find(std::string_view name) const;
  Value* find_local(std::string_view name) const;
  void erase(std::string_view name);
  std::vector<std::string> local_names() const;
  // Changes whenever a value is made or erased, or gets a keeper, here or in a parent, and differs
  // between scopes: whoever keeps addresses of values keeps this number too.
  uint64_t revision() const { return revision_ + (parent_ != nullptr ? parent_->revision() : 0); }

  // What this very scope has of the variable is not its value: the keeper has that.
  void set_keeper(std::string_view name, std::weak_ptr<Keeper> keeper);
  // The keeper of the nearest variable of that name; null when its value is here. A keeper that is
  // gone has left a variable without a value.
  const std::weak_ptr<Keeper>* keeper(std::string_view name) const;

  // Expires with the scope, for whoever keeps its address.
  std::weak_ptr<const void> life() const { return life_; }

  // The tensor of that name; throws ProgramError when there is no such value or it is not one.
  Tensor& tensor(std::string_view name) const;

 private:
  const Scope* parent_ = nullptr;
  uint64_t revision_;
  std::map<std::string, std::unique_ptr<Value>, std::less<>> values_;
  std::map<std::string, std::weak_ptr<Keeper>, std::less<>> keepers_;
  std::shared_ptr<const void> life_ = std::make_shared<char>();
};

}  // namespace fleet::fluid

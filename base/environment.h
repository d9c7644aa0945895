// The environment of a process as a value, so that tests and several ranks in one process can each
// have their own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fleet {

class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string> values)
      : values_(values.begin(), values.end()) {}

  // A snapshot of this process's own.
  static Environment of_process();

  // Nothing when unset; an empty text when set to nothing.
  std::optional<std::string> get(std::string_view name) const;
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  const std::map<std::string, std::string, std::less<>>& all() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace fleet

// Environment variables as a value, so that several ranks in one process, and tests, can each have
// their own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fleet {

class Environment {
 public:
  Environment() = default;  // no variable at all
  explicit Environment(std::map<std::string, std::string, std::less<>> variables)
      : variables_(std::move(variables)) {}
  // A copy of the process's variables. Not to be called while another thread changes them.
  static Environment of_process();

  // The value without blanks around it. A variable that is set but blank counts as not set.
  std::optional<std::string> get(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }
  // The first variable that is set and whose name begins so.
  std::optional<std::string> first_with_prefix(std::string_view prefix) const;
  void set(std::string name, std::string value);
  const std::map<std::string, std::string, std::less<>>& all() const { return variables_; }

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace fleet

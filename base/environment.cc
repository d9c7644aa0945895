#include "base/environment.h"

#include <unistd.h>

#include "base/strings.h"

namespace fleet {

Environment Environment::of_process() {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return Environment(std::move(variables));
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  const std::string_view value = trim(found->second);
  if (value.empty()) return std::nullopt;
  return std::string(value);
}

std::optional<std::string> Environment::first_with_prefix(std::string_view prefix) const {
  for (auto at = variables_.lower_bound(prefix);
       at != variables_.end() && at->first.starts_with(prefix); ++at) {
    if (has(at->first)) return at->first;
  }
  return std::nullopt;
}

void Environment::set(std::string name, std::string value) {
  variables_.insert_or_assign(std::move(name), std::move(value));
}

}  // namespace fleet

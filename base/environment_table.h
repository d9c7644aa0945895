// Every variable of the environment that Fleet's libraries and programs read, or set for the
// processes that they start. docs/environment.md is made of it, and a test holds it against every
// variable that the sources name.
#pragma once

#include <span>
#include <string_view>

namespace fleet {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view standard;  // the value that stands for "not set"; empty: there is none
  std::string_view unit;      // of the value: "ms", "folder", "0 or 1"
  std::string_view meaning;   // sentences
};

struct EnvironmentGroup {
  std::string_view title;
  std::string_view about;  // who reads them, and when
  std::span<const EnvironmentVariable> variables;
};

std::span<const EnvironmentGroup> environment_table();

}  // namespace fleet

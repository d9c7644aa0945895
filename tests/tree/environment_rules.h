// Which environment variables the sources name, for holding them against environment_table().
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/tree/tree_rules.h"

namespace fleet::tree {

struct NamedVariable {
  std::string name;
  std::string place;  // "path:line"
};

// In string literals: every FLEET_* and FLAGS_* name, and any other capitals that are asked for of
// an Environment or of getenv. Prefixes are none: what ends with '_', or stands in starts_with().
std::vector<NamedVariable> find_variables(const SourceFile& file);

// Of a script: every FLEET_* that it expands.
std::vector<NamedVariable> find_script_variables(const SourceFile& file);

}  // namespace fleet::tree

// Programs in the form of the golden files, and what differs between two of them.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::golden {

using Json = nlohmann::json;

// A program as the files write it. Control variables (without type) are called "@DEP@0", … in
// order of first appearance.
Json dump_program(const fluid::Program& program);

struct CompareOptions {
  // Full paths of lists whose order means nothing.
  std::set<std::string> unordered = {};
};

// The paths of a file's order_dependent_fields.
CompareOptions compare_options(const Json& golden);

// One line per difference, "<path>: expected …, got …", paths beginning with `path`. Absent
// attributes stand for their defaults, absent slots for empty ones, floats are compared as 32-bit
// values; an expected null (a fact that Paddle does not keep) accepts anything.
std::vector<std::string> compare_program(const Json& expected, const fluid::Program& got,
                                         const std::string& path,
                                         const CompareOptions& options = {});

// The same for any other part of a file.
std::vector<std::string> compare_json(const Json& expected, const Json& got,
                                      const std::string& path, const CompareOptions& options = {});

}  // namespace fleet::golden

// Programs from the golden files' JSON, without building the network they were made of.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::golden {

// `order`: names whose variables are created first, in this order; then those that the program's
// ops use, then the rest by name. Golden files list variables by name only. Attributes are
// completed by the op table where it knows the op. Throws fleet::Error for what a program cannot
// hold.
fluid::Program load_program(const nlohmann::json& program,
                            const std::vector<std::string>& order = {});

// The order in which a startup program's variables were made: each initialiser was put in front of
// those that were there.
std::vector<std::string> creation_order(const nlohmann::json& startup);

// An attribute's value: numbers, texts, lists, {"block": i}.
fluid::Attribute load_attribute(const nlohmann::json& value);

}  // namespace fleet::golden

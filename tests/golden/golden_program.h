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

// Names in order of first use by the ops of the outermost block.
std::vector<std::string> use_order(const fluid::Program& program);

// An attribute's value: numbers, texts, lists, {"block": i}.
fluid::Attribute load_attribute(const nlohmann::json& value);

}  // namespace fleet::golden

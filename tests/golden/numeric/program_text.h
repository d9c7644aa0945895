// Ops as texts that compare: of a program, and of a numeric golden file.
#pragma once

#include <string>
#include <vector>

#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

// One line an op: type, inputs, outputs, attributes with their defaults, 32-bit floats. Sub-blocks
// and what only transpilers read are left out.
// An op's type and the variables in its slots.
std::string slots_text(const std::string& type, const SlotMap& inputs, const SlotMap& outputs);

std::vector<std::string> op_texts(const Block& block);
// The same of a file's `ops`, which have the original's form. Throws for an op or attribute that
// this library does not know.
std::vector<std::string> op_texts(const Json& ops);

}  // namespace fleet::fluid::golden

// Ops as texts that compare: of a program, and of a numeric golden file.
#pragma once

#include <string>
#include <vector>

#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

// An op's type, the variables in its slots, and those of its attributes that `named` has, defaults
// written out; 32-bit floats.
std::string op_text(const Operator& op, const AttributeMap& named);

// One line an op, with all of its attributes; sub-blocks are left out.
std::vector<std::string> op_texts(const Block& block);
// The same of a file's `ops`, which have Paddle's form. Throws for an op or attribute that
// this library does not know.
std::vector<std::string> op_texts(const Json& ops);

}  // namespace fleet::fluid::golden

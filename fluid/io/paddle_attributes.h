// Attributes of Paddle's ops that this library's ops do not have.
#pragma once

#include <string>

#include "fluid/program/attribute.h"

namespace fleet::fluid::paddle {

// Whether the attribute changes nothing at this value: it only chooses a library, or has the value
// that release 1.8.5 gives it by default.
bool is_neutral(const std::string& name, const Attribute& value);

}  // namespace fleet::fluid::paddle

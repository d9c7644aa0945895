// docs/errors.md, made from base/error.h's table.
#pragma once

#include <string>

namespace fleet::tools {

std::string error_document();

}  // namespace fleet::tools

// Pages of docs/ that are made from tables of the code. A test holds each against its table.
#pragma once

#include <string>

namespace fleet::tools {

std::string error_document();        // docs/errors.md, of base/error.h
std::string environment_document();  // docs/environment.md, of base/environment_table.h

}  // namespace fleet::tools

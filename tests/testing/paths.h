// Where the project's sources and what was built of them lie, for tests that read or start them.
#pragma once

#include <string>
#include <string_view>

namespace fleet::testing {

// An absolute path; `relative` is from the root of the sources, or of the build folder.
std::string source_path(std::string_view relative);
std::string binary_path(std::string_view relative);

}  // namespace fleet::testing

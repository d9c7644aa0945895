// Where the project's sources and what was built of them lie, for tests that read or start them.
#pragma once

#include <string>
#include <string_view>

namespace fleet::testing {

// Absolute paths; `relative` is from the root of the sources, or of the build folder.
std::string source_path(std::string_view relative);
std::string binary_path(std::string_view relative);

// Data sets that are too large for the project: below FLEET_TEST_DATA, else below shared/data
// beside the project's folder (CONTRIBUTING.md).
std::string data_path(std::string_view relative);

}  // namespace fleet::testing

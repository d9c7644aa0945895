#include "tests/testing/paths.h"

#include <cstdlib>

namespace fleet::testing {

std::string source_path(std::string_view relative) {
  return std::string(FLEET_SOURCE_DIR "/").append(relative);
}

std::string binary_path(std::string_view relative) {
  return std::string(FLEET_BINARY_DIR "/").append(relative);
}

std::string data_path(std::string_view relative) {
  const char* given = std::getenv("FLEET_TEST_DATA");
  const std::string folder = given != nullptr ? given : source_path("../shared/data");
  return (folder + "/").append(relative);
}

}  // namespace fleet::testing

#include "tests/testing/paths.h"

namespace fleet::testing {

std::string source_path(std::string_view relative) {
  return std::string(FLEET_SOURCE_DIR "/").append(relative);
}

std::string binary_path(std::string_view relative) {
  return std::string(FLEET_BINARY_DIR "/").append(relative);
}

}  // namespace fleet::testing

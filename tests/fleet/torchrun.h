// PyTorch's launcher, for tests of ranks that it starts.
#pragma once

#include <filesystem>
#include <string>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {

// Where it is installed: beside the benchmarks' peers (scripts/bench.sh), or in PATH. Else empty.
inline std::string torchrun_program() {
  std::string peers = source_path("build/peers/bin/torchrun");
  if (std::filesystem::exists(peers)) return peers;
  const auto found = run_command("command -v torchrun", 10);
  return found.code == 0 ? std::string(trim(found.output)) : std::string();
}

}  // namespace fleet::testing

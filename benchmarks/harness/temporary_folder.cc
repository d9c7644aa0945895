#include "benchmarks/harness/temporary_folder.h"

#include <filesystem>
#include <unistd.h>

#include "base/error.h"

namespace fleet::benchmarks {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "fleet_bench_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw_error(ErrorCode::kInput, {.what = "no temporary folder", .where = pattern});
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fleet::benchmarks

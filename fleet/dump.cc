#include "fleet/dump.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace fleet {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (file.flush()) return;
  throw_error(ErrorCode::kInput, {.what = "a program cannot be written",
                                  .where = path.string(),
                                  .expected = "a folder that can be written to",
                                  .fix = "correct or unset FLEET_DUMP_PROGRAM"});
}

}  // namespace

void dump_program(const std::string& directory, const std::string& name,
                  const fluid::Program& program) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  const std::filesystem::path base = std::filesystem::path(directory) / name;
  write(base.string() + ".txt", program.to_string());
  write(base.string() + ".json", program.to_json());
}

}  // namespace fleet

#include "strategies/parameter_server/server/checkpoint/save_folders.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {

namespace fs = std::filesystem;

SaveFolders::SaveFolders(const std::vector<std::string>& folders) {
  for (const auto& folder : folders) folders_.push_back(fs::absolute(folder));
}

void SaveFolders::require_inside(const fs::path& folder, const std::string& asked) const {
  std::vector<std::string> allowed;
  for (const fs::path& each : folders_) {
    const fs::path real = fs::weakly_canonical(each / "");
    // A path that ends with a slash has an empty last part.
    const fs::path base = real.has_filename() ? real : real.parent_path();
    const auto [end, _] = std::mismatch(base.begin(), base.end(), folder.begin(), folder.end());
    if (end == base.end()) return;
    allowed.push_back(base.string());
  }
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "a server may not use this folder",
               .where = "a table, a model or a checkpoint",
               .expected = str_cat("a folder in ", join(allowed, " or ")),
               .got = str_cat("'", asked, "', which is ", folder.string()),
               .fix = "name the folder in FLEET_SERVER_FOLDERS of the servers"});
}

fs::path SaveFolders::folder_at(const fs::path& folder) const {
  fs::path real = fs::weakly_canonical(fs::absolute(folder));
  require_inside(real, folder.string());
  return real;
}

fs::path SaveFolders::place_for(const fs::path& file) const {
  const fs::path asked = fs::absolute(file).parent_path();
  require_inside(fs::weakly_canonical(asked), asked.string());
  fs::create_directories(asked);
  // Now that all of it is there, no part can be a link that was not followed.
  const fs::path folder = fs::canonical(asked);
  require_inside(folder, asked.string());
  return folder / file.filename();
}

}  // namespace fleet::strategies

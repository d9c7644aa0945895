// Where a server may write, and read checkpoints, whatever a frame says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fleet::strategies {

// Any thread.
class SaveFolders {
 public:
  // Relative folders begin in the working directory as it is now.
  explicit SaveFolders(const std::vector<std::string>& folders);

  // The file's path without links and "..", its folder made where it is missing. Throws UsageError
  // when the folder lies, by its real place, in none of these folders; nothing is made then.
  std::filesystem::path place_for(const std::filesystem::path& file) const;
  // The path of a folder that is there, without links and "..". Throws as the other one does.
  std::filesystem::path folder_at(const std::filesystem::path& folder) const;

 private:
  void require_inside(const std::filesystem::path& folder, const std::string& asked) const;

  std::vector<std::filesystem::path> folders_;
};

}  // namespace fleet::strategies

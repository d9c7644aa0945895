// A folder of the job's own: its secret, and what Open MPI puts beside it.
#pragma once

#include <string>
#include <string_view>

namespace fleet::launch {

// Mode 0700, in /dev/shm where that is possible (nothing reaches a disk), else in TMPDIR or /tmp.
// Removed with everything in it by the destructor, and by the guard when the launcher is killed.
class RunFolder {
 public:
  RunFolder();
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file of mode 0600 and returns its path.
  std::string write_private(const std::string& name, std::string_view text) const;

 private:
  std::string path_;
};

}  // namespace fleet::launch

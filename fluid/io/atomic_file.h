// Files that are there wholly or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/files/file_system.h"

namespace fleet::fluid {

// A file written part by part: a temporary one beside the target, until commit(). Every call throws
// ResourceError when the system does not do it; the target is then as before.
class AtomicFile {
 public:
  // The target's directory is made when it is missing.
  explicit AtomicFile(const std::filesystem::path& target, FileSystem& files = system_files());
  // Removes the temporary file.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // The disk begins to write the bytes, too.
  void append(std::span<const std::byte> bytes);
  // Waits until the disk has all but the last part: commit() then waits for no more than that.
  void wait_for_disk();
  // Syncs the file, renames it over the target and syncs the directory. The last call.
  void commit();

 private:
  FileSystem& files_;
  std::filesystem::path target_;
  std::filesystem::path directory_;
  std::unique_ptr<OutputFile> file_;  // none when it has its name
  uint64_t last_ = 0;                 // where the last part begins
  uint64_t end_ = 0;
};

// Makes a directory where it is missing, with those that it is in. Throws ResourceError.
void make_directory(const std::filesystem::path& directory, FileSystem& files = system_files());

// All of a file at once.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes,
                           FileSystem& files = system_files());

// The whole file. Throws ResourceError when it cannot be read or is larger than `limit` bytes.
std::vector<std::byte> read_whole_file(const std::filesystem::path& path, size_t limit,
                                       FileSystem& files = system_files());

}  // namespace fleet::fluid

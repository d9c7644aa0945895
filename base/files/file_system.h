// The seam between files that must survive and the disk that they are on: the system's, or one in
// memory that tests fill, slow down and break.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

namespace fleet {

// A file that is written from its begin to its end. Destroying it closes it.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual const std::filesystem::path& path() const = 0;
  // All of the bytes, or an error.
  virtual std::error_code append(std::span<const std::byte> bytes) = 0;
  // The disk begins to write these bytes of the file, and `waits`: has them on return. Errors are
  // those of the disk alone; a file system that cannot do it does nothing.
  virtual std::error_code write_back(uint64_t begin, uint64_t bytes, bool waits) = 0;
  // What was written survives a loss of power; its name does when its folder is synced, too.
  virtual std::error_code sync() = 0;
};

// A file that is read from its begin on. Destroying it closes it.
class InputFile {
 public:
  virtual ~InputFile() = default;
  virtual uint64_t size() const = 0;
  virtual std::error_code seek(uint64_t position) = 0;
  // As many bytes as there are now, at most `into`; `got` 0: the end.
  virtual std::error_code read(std::span<std::byte> into, size_t& got) = 0;
};

// Any thread.
class FileSystem {
 public:
  using Path = std::filesystem::path;

  virtual ~FileSystem() = default;
  // In a folder that is there; std::errc::file_exists where something has the name.
  virtual std::error_code create_folder(const Path& folder) = 0;
  // A new file that all may read. Its name is `beginning` and some letters. Null: an error.
  virtual std::unique_ptr<OutputFile> create(const Path& beginning, std::error_code& error) = 0;
  // Null: an error.
  virtual std::unique_ptr<InputFile> open(const Path& file, std::error_code& error) = 0;
  // At once; in place of a file that has the new name.
  virtual std::error_code rename(const Path& from, const Path& to) = 0;
  // The two have each other's name, at once; an error where the file system cannot.
  virtual std::error_code exchange(const Path& a, const Path& b) = 0;
  // No error where there is none.
  virtual std::error_code remove(const Path& file) = 0;
  // With all that is in it, one after the other.
  virtual std::error_code remove_all(const Path& folder) = 0;
  // Names in the folder, and that others are gone, survive a loss of power. No error where the file
  // system cannot.
  virtual std::error_code sync_folder(const Path& folder) = 0;
  // False, too, where it cannot be told.
  virtual bool exists(const Path& path) = 0;
  // In no order; none where the folder cannot be read.
  virtual std::vector<Path> folders_in(const Path& folder) = 0;
};

FileSystem& system_files();

}  // namespace fleet

#include "fluid/io/atomic_file.h"

#include <string>
#include <system_error>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

void throw_if(const std::error_code& error, const char* what, const std::filesystem::path& path) {
  if (!error) return;
  throw_error(ErrorCode::kInput, {.what = what,
                                  .where = "file " + path.string(),
                                  .expected = "a file that this user may use, and room",
                                  .got = error.message(),
                                  .fix = "check the path, its permissions and the free space"});
}

// Where it is missing, with those that it is in. Their names survive a loss of power.
std::error_code make_folders(const std::filesystem::path& folder, FileSystem& files) {
  const auto parent = folder.has_parent_path() ? folder.parent_path() : ".";
  std::error_code error = files.create_folder(folder);
  if (error == std::errc::no_such_file_or_directory && parent != folder) {
    error = make_folders(parent, files);
    if (!error) error = files.create_folder(folder);
  }
  if (error == std::errc::file_exists) return {};
  return error ? error : files.sync_folder(parent);
}

}  // namespace

void make_directory(const std::filesystem::path& directory, FileSystem& files) {
  throw_if(make_folders(directory, files), "the directory cannot be made", directory);
}

AtomicFile::AtomicFile(const std::filesystem::path& target, FileSystem& files)
    : files_(files),
      target_(target),
      directory_(target.has_parent_path() ? target.parent_path() : ".") {
  make_directory(directory_, files_);
  std::error_code error;
  file_ = files_.create(directory_ / ("." + target_.filename().string() + "."), error);
  throw_if(error, "the file cannot be made", target_);
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  const std::filesystem::path name = file_->path();
  file_.reset();
  static_cast<void>(files_.remove(name));
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  throw_if(file_->append(bytes), "the file cannot be written", target_);
  last_ = end_;
  end_ += bytes.size();
  if (bytes.empty()) return;
  throw_if(file_->write_back(last_, bytes.size(), false), "the file cannot be written", target_);
}

void AtomicFile::wait_for_disk() {
  if (last_ == 0) return;
  throw_if(file_->write_back(0, last_, true), "the file cannot be written", target_);
}

void AtomicFile::commit() {
  throw_if(file_->sync(), "the file cannot be synced", target_);
  throw_if(files_.rename(file_->path(), target_), "the file cannot be renamed into place", target_);
  file_.reset();
  static_cast<void>(files_.sync_folder(directory_));
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes,
                           FileSystem& files) {
  AtomicFile file(path, files);
  file.append(bytes);
  file.commit();
}

std::vector<std::byte> read_whole_file(const std::filesystem::path& path, size_t limit,
                                       FileSystem& files) {
  std::error_code error;
  const auto file = files.open(path, error);
  throw_if(error, "the file cannot be opened", path);
  std::vector<std::byte> bytes;
  std::byte chunk[1 << 16];
  while (true) {
    size_t got = 0;
    throw_if(file->read(chunk, got), "the file cannot be read", path);
    if (got == 0) return bytes;
    if (bytes.size() + got > limit) {
      throw_error(ErrorCode::kCorruptFile, {.what = "the file is too large to be what it should be",
                                            .where = "file " + path.string(),
                                            .expected = str_cat("at most ", limit, " bytes"),
                                            .got = "more",
                                            .fix = "check that this is the right file"});
    }
    bytes.insert(bytes.end(), chunk, chunk + got);
  }
}

}  // namespace fleet::fluid

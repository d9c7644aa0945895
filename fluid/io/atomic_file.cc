#include "fluid/io/atomic_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void throw_file(const char* what, const std::filesystem::path& path, int error) {
  throw_error(ErrorCode::kInput, {.what = what,
                                  .where = "file " + path.string(),
                                  .expected = {},
                                  .got = std::generic_category().message(error),
                                  .fix = "check the path, its permissions and the free space"});
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file("the file cannot be written", path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& target)
    : target_(target), directory_(target.has_parent_path() ? target.parent_path() : ".") {
  std::error_code failed;
  std::filesystem::create_directories(directory_, failed);
  if (failed) throw_file("the directory cannot be made", directory_, failed.value());
  std::string name = (directory_ / ("." + target_.filename().string() + ".XXXXXX")).string();
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) throw_file("the file cannot be made", target_, errno);
  name_ = std::move(name);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

// A file system may not be able to write a range.
void AtomicFile::write_back(uint64_t begin, uint64_t bytes, unsigned flags) {
  if (bytes == 0) return;
  if (::sync_file_range(fd_, static_cast<off_t>(begin), static_cast<off_t>(bytes), flags) == 0) {
    return;
  }
  if (errno == EIO || errno == ENOSPC || errno == EDQUOT) {
    throw_file("the file cannot be written", target_, errno);
  }
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  write_all(fd_, bytes, target_);
  last_ = end_;
  end_ += bytes.size();
  write_back(last_, bytes.size(), SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::wait_for_disk() {
  write_back(0, last_,
             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

void AtomicFile::commit() {
  if (::fchmod(fd_, 0644) != 0 || ::fsync(fd_) != 0) {
    throw_file("the file cannot be synced", target_, errno);
  }
  if (::rename(name_.c_str(), target_.c_str()) != 0) {
    throw_file("the file cannot be renamed into place", target_, errno);
  }
  name_.clear();
  const FileDescriptor parent(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) static_cast<void>(::fsync(parent.get()));
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.append(bytes);
  file.commit();
}

std::vector<std::byte> read_whole_file(const std::filesystem::path& path, size_t limit) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw_file("the file cannot be opened", path, errno);
  std::vector<std::byte> bytes;
  std::byte chunk[1 << 16];
  while (true) {
    const ssize_t got = ::read(file.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file("the file cannot be read", path, errno);
    if (got == 0) return bytes;
    if (bytes.size() + static_cast<size_t>(got) > limit) {
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

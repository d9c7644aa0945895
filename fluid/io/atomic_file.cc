#include "fluid/io/atomic_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

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

// Removes the temporary file unless it was renamed.
class Temporary {
 public:
  explicit Temporary(std::string name) : name_(std::move(name)) {}
  ~Temporary() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  void keep() { name_.clear(); }

 private:
  std::string name_;
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

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::filesystem::path directory = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) throw_file("the directory cannot be made", directory, failed.value());
  std::string name = (directory / ("." + path.filename().string() + ".XXXXXX")).string();
  const FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) throw_file("the file cannot be made", path, errno);
  Temporary temporary(name);
  write_all(file.get(), bytes, path);
  if (::fchmod(file.get(), 0644) != 0 || ::fsync(file.get()) != 0) {
    throw_file("the file cannot be synced", path, errno);
  }
  if (::rename(name.c_str(), path.c_str()) != 0) {
    throw_file("the file cannot be renamed into place", path, errno);
  }
  temporary.keep();
  const FileDescriptor parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) static_cast<void>(::fsync(parent.get()));
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

#include "base/files/file_system.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/process/file_descriptor.h"

namespace fleet {
namespace {

std::error_code last_error() {
  return {errno, std::generic_category()};
}

std::error_code error_unless(bool done) {
  return done ? std::error_code() : last_error();
}

class SystemOutput final : public OutputFile {
 public:
  SystemOutput(FileDescriptor file, std::filesystem::path path)
      : file_(std::move(file)), path_(std::move(path)) {}

  const std::filesystem::path& path() const override { return path_; }

  std::error_code append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return last_error();
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
  }

  std::error_code write_back(uint64_t begin, uint64_t bytes, bool waits) override {
    const unsigned flags =
        waits ? SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER
              : SYNC_FILE_RANGE_WRITE;
    if (::sync_file_range(file_.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes),
                          flags) == 0) {
      return {};
    }
    const bool disk = errno == EIO || errno == ENOSPC || errno == EDQUOT;
    return error_unless(!disk);
  }

  std::error_code sync() override { return error_unless(::fsync(file_.get()) == 0); }

 private:
  FileDescriptor file_;
  std::filesystem::path path_;
};

class SystemInput final : public InputFile {
 public:
  SystemInput(FileDescriptor file, uint64_t size) : file_(std::move(file)), size_(size) {}

  uint64_t size() const override { return size_; }

  std::error_code seek(uint64_t position) override {
    return error_unless(::lseek(file_.get(), static_cast<off_t>(position), SEEK_SET) >= 0);
  }

  std::error_code read(std::span<std::byte> into, size_t& got) override {
    got = 0;
    while (true) {
      const ssize_t count = ::read(file_.get(), into.data(), into.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return last_error();
      got = static_cast<size_t>(count);
      return {};
    }
  }

 private:
  FileDescriptor file_;
  uint64_t size_;
};

class SystemFiles final : public FileSystem {
 public:
  std::error_code create_folder(const Path& folder) override {
    return error_unless(::mkdir(folder.c_str(), 0777) == 0);
  }

  std::unique_ptr<OutputFile> create(const Path& beginning, std::error_code& error) override {
    std::string name = beginning.string() + "XXXXXX";
    FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
    error = error_unless(file && ::fchmod(file.get(), 0644) == 0);
    if (!error) return std::make_unique<SystemOutput>(std::move(file), name);
    if (file) ::unlink(name.c_str());
    return nullptr;
  }

  std::unique_ptr<InputFile> open(const Path& file, std::error_code& error) override {
    FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    error = error_unless(opened && ::fstat(opened.get(), &status) == 0);
    if (error) return nullptr;
    return std::make_unique<SystemInput>(std::move(opened), static_cast<uint64_t>(status.st_size));
  }

  std::error_code rename(const Path& from, const Path& to) override {
    return error_unless(::rename(from.c_str(), to.c_str()) == 0);
  }

  std::error_code exchange(const Path& a, const Path& b) override {
    return error_unless(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) ==
                        0);
  }

  std::error_code remove(const Path& file) override {
    std::error_code error;
    std::filesystem::remove(file, error);
    return error;
  }

  std::error_code remove_all(const Path& folder) override {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    return error;
  }

  std::error_code sync_folder(const Path& folder) override {
    const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened || ::fsync(opened.get()) == 0) return {};
    const bool disk = errno == EIO || errno == ENOSPC || errno == EDQUOT;
    return error_unless(!disk);
  }

  bool exists(const Path& path) override {
    std::error_code error;
    return std::filesystem::exists(path, error);
  }

  std::vector<Path> folders_in(const Path& folder) override {
    std::vector<Path> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      std::error_code unknown;
      if (entry.is_directory(unknown)) found.push_back(entry.path());
    }
    return found;
  }
};

}  // namespace

FileSystem& system_files() {
  // Never destroyed: static objects may write files while they end.
  static auto* const files = new SystemFiles;
  return *files;
}

}  // namespace fleet

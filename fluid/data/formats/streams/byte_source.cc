#include "fluid/data/formats/streams/byte_source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/streams/sources_impl.h"

namespace fleet::fluid::data {
namespace {

constexpr size_t kSkipBytes = size_t{1} << 18;

FileDescriptor open_file(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_unreadable(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode)) {
    throw_unreadable(path, EISDIR);
  }
  return file;
}

}  // namespace

StopEvent::StopEvent() : event_(::eventfd(0, EFD_CLOEXEC)) {
  if (!event_) {
    throw_error(ErrorCode::kInput, {.what = "the process has no file descriptor left",
                                    .got = std::strerror(errno),
                                    .fix = "raise the limit with ulimit -n"});
  }
}

void StopEvent::set() const {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof one);
}

bool ByteSource::skip(uint64_t bytes) {
  std::vector<char> dropped(std::min<uint64_t>(bytes, kSkipBytes));
  while (bytes > 0) {
    const size_t wanted = std::min<uint64_t>(bytes, dropped.size());
    const size_t got = read(std::span(dropped).first(wanted));
    bytes -= got;
    if (got < wanted) return bytes == 0;
  }
  return true;
}

void throw_unreadable(const std::filesystem::path& path, int error) {
  throw_error(ErrorCode::kInput, {.what = "the file cannot be read",
                                  .where = "file " + path.string(),
                                  .expected = "a readable file",
                                  .got = std::strerror(error),
                                  .fix = "check the path and its permissions"});
}

size_t PlainSource::read(std::span<char> into) {
  size_t got = 0;
  while (got < into.size()) {
    const ssize_t count = ::read(file_.get(), into.data() + got, into.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unreadable(path_, errno);
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  return got;
}

bool PlainSource::skip(uint64_t bytes) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return ByteSource::skip(bytes);
  }
  const off_t at = ::lseek(file_.get(), 0, SEEK_CUR);
  if (at < 0 || bytes > static_cast<uint64_t>(std::max<off_t>(0, status.st_size - at))) {
    return false;
  }
  return ::lseek(file_.get(), static_cast<off_t>(bytes), SEEK_CUR) >= 0;
}

Packing packing_of(std::span<const char> first) {
  const std::string_view bytes(first.data(), first.size());
  // The second form is a skippable frame, with which parallel compressors begin.
  const bool skippable =
      bytes.size() >= 4 && (bytes[0] & 0xF0) == 0x50 && bytes.substr(1).starts_with("\x2A\x4D\x18");
  if (bytes.starts_with("\x28\xB5\x2F\xFD") || skippable) return Packing::kZstd;
  return bytes.starts_with("\x1F\x8B") ? Packing::kGzip : Packing::kNone;
}

std::unique_ptr<ByteSource> open_source(const std::filesystem::path& path,
                                        const SourceOptions& options) {
  FileDescriptor file = open_file(path);
  if (!options.pipe_command.empty() && options.pipe_command != "cat") {
    const std::string ending = path.extension();
    const std::string unpack = ending == ".gz" ? "gzip -dc" : ending == ".zst" ? "zstd -dc" : "";
    return std::make_unique<PipeSource>(file, path, unpack, options);
  }
  std::array<char, 4> first{};
  const ssize_t got = ::pread(file.get(), first.data(), first.size(), 0);
  const size_t known = got > 0 ? static_cast<size_t>(got) : 0;  // none of what is no regular file
  auto plain = std::make_unique<PlainSource>(std::move(file), path);
  switch (packing_of(std::span(first).first(known))) {
    case Packing::kGzip:
      return std::make_unique<GzipSource>(PackedInput(std::move(plain), path));
    case Packing::kZstd:
      return std::make_unique<ZstdSource>(PackedInput(std::move(plain), path));
    case Packing::kNone:
      break;
  }
  return plain;
}

}  // namespace fleet::fluid::data

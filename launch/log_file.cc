#include "launch/log_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <regex>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

constexpr size_t kLineLimit = 400;
constexpr off_t kTailBytes = 64 << 10;
constexpr size_t kPartialLimit = 64 << 10;
constexpr size_t kBlameLines = 40;
constexpr Duration kRetry = std::chrono::milliseconds(20);

// Control characters of a log must not steer the reader's terminal.
std::string printable(std::string_view line) {
  std::string text(line.substr(0, kLineLimit));
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = ' ';
  }
  if (line.size() > kLineLimit) text += " …";
  return text;
}

[[noreturn]] void refuse(const std::string& path, const char* expected, const char* fix) {
  throw_error(ErrorCode::kInput, {.what = "cannot write a log file",
                                  .where = path,
                                  .expected = expected,
                                  .got = std::strerror(errno),
                                  .fix = fix});
}

}  // namespace

FileDescriptor open_log(const std::string& path, bool truncate) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (truncate ? O_TRUNC : 0);
  FileDescriptor file(::open(path.c_str(), flags, 0644));
  if (!file) refuse(path, "a folder that this user may write to", "choose another --log_dir");
  return file;
}

off_t append_line(const std::string& path, const std::string& line) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  struct stat info {};
  char last = '\n';
  bool good = file && ::fstat(file.get(), &info) == 0;
  if (good && info.st_size > 0) good = ::pread(file.get(), &last, 1, info.st_size - 1) == 1;
  const std::string text = (last == '\n' ? "" : "\n") + line + "\n";
  const auto size = static_cast<ssize_t>(text.size());
  if (!good || ::write(file.get(), text.data(), text.size()) != size) {
    refuse(path, "a file that can be written, and room for it", "free some space there");
  }
  return info.st_size + size;
}

std::vector<std::string> last_lines(const std::string& path, size_t count, off_t first) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return {};
  const off_t begin = std::max(first, info.st_size - kTailBytes);
  if (begin >= info.st_size) return {};
  std::string text(static_cast<size_t>(info.st_size - begin), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), begin);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n')) lines.push_back(printable(line));
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<long>(count));
  return lines;
}

std::optional<Blame> parse_blame(std::string_view line) {
  static const std::regex kForms[] = {
      std::regex(R"(culprit[=:] ?"?(worker|server|rank|trainer|pserver)[/ ](\d{1,6}))"),
      std::regex(
          R"((worker|server|rank|trainer|pserver)[/ ](\d{1,6})\b.* in phase \w+ at step \d)")};
  const std::string text(line);
  for (const std::regex& form : kForms) {
    std::smatch match;
    if (!std::regex_search(text, match, form)) continue;
    const bool server = match[1] == "server" || match[1] == "pserver";
    return Blame{.role = server ? Role::kServer : Role::kWorker,
                 .index = static_cast<int>(parse_int(match[2].str()).value_or(0)),
                 .line = text};
  }
  return std::nullopt;
}

std::optional<Blame> find_blame(const std::string& path, off_t begin) {
  for (const std::string& line : last_lines(path, kBlameLines, begin)) {
    if (auto blame = parse_blame(line)) return blame;
  }
  return std::nullopt;
}

LogFollower::LogFollower(EventLoop& loop, const std::vector<Member>& members,
                         const std::vector<off_t>& begins, LineHandler handler,
                         std::function<bool()> waits)
    : loop_(loop),
      handler_(std::move(handler)),
      waits_(std::move(waits)),
      inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (!inotify_) {
    throw_error(ErrorCode::kInput, {.what = "cannot follow the log files for --tee",
                                    .where = "inotify",
                                    .expected = "a free inotify instance",
                                    .got = std::strerror(errno),
                                    .fix = "raise fs.inotify.max_user_instances"});
  }
  for (const Member& member : members) {
    ::inotify_add_watch(inotify_.get(), member.log_file.c_str(), IN_MODIFY);
    Source source;
    source.member = &member;
    source.file = FileDescriptor(::open(member.log_file.c_str(), O_RDONLY | O_CLOEXEC));
    if (source.file) ::lseek(source.file.get(), begins.at(sources_.size()), SEEK_SET);
    sources_.push_back(std::move(source));
  }
  loop_.watch(inotify_.get(), [this] {
    alignas(inotify_event) char events[4096];
    while (::read(inotify_.get(), events, sizeof(events)) > 0) {
    }
    if (!retry_) read_all();
  });
}

void LogFollower::read_all() {
  retry_.reset();
  for (Source& source : sources_) read_new(source, false);
  if (waits_()) retry_ = loop_.call_after(kRetry, [this] { read_all(); });
}

LogFollower::~LogFollower() {
  loop_.unwatch(inotify_.get());
  if (retry_) loop_.cancel(*retry_);
}

void LogFollower::read_new(Source& source, bool all) {
  char bytes[16384];
  ssize_t count = 0;
  while (source.file && (all || !waits_()) &&
         (count = ::read(source.file.get(), bytes, sizeof(bytes))) > 0) {
    source.partial.append(bytes, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end = 0; (end = source.partial.find('\n', begin)) != std::string::npos;) {
      handler_(*source.member, std::string_view(source.partial).substr(begin, end - begin));
      begin = end + 1;
    }
    source.partial.erase(0, begin);
    if (source.partial.size() > kPartialLimit) {
      handler_(*source.member, source.partial);
      source.partial.clear();
    }
  }
}

void LogFollower::finish() {
  for (Source& source : sources_) {
    read_new(source, true);
    if (!source.partial.empty()) handler_(*source.member, source.partial);
    source.partial.clear();
  }
}

}  // namespace fleet::launch

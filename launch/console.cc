#include "launch/console.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <iomanip>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/strings.h"

namespace fleet::launch {
namespace {

constexpr size_t kNarrowest = 20;

size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < kNarrowest) return 80;
  return size.ws_col;
}

}  // namespace

Console::Console(std::string program) : program_(std::move(program)) {
  rewrites_ = ::isatty(STDERR_FILENO) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  colour_ = rewrites_ && (no_color == nullptr || *no_color == '\0');
}

Console::~Console() {
  use(nullptr);
}

void Console::use(EventLoop* loop) {
  if (loop_ != nullptr && watched_ >= 0) loop_->unwatch(watched_);
  watched_ = -1;
  loop_ = loop;
  write_when_ready();
}

void Console::write(int fd, const std::string& text) {
  if (text.empty()) return;
  kept_.push_back({.fd = fd, .bytes = text});
  if (!write_kept(false)) write_when_ready();
}

// A pipe with room takes PIPE_BUF bytes without waiting, though it may not say so of more.
bool Console::write_kept(bool wait) {
  while (!kept_.empty()) {
    Text& text = kept_.front();
    pollfd writable{text.fd, POLLOUT, 0};
    const int ready = ::poll(&writable, 1, wait ? -1 : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count =
        ::write(text.fd, text.bytes.data(), std::min<size_t>(text.bytes.size(), PIPE_BUF));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count > 0) text.bytes.erase(0, static_cast<size_t>(count));
    if (count <= 0 || text.bytes.empty()) kept_.pop_front();  // nobody reads, or all was read
  }
  return true;
}

void Console::write_when_ready() {
  if (loop_ == nullptr || kept_.empty() || watched_ >= 0) return;
  watched_ = kept_.front().fd;
  loop_->watch_writable(watched_, [this] {
    loop_->unwatch(watched_);
    watched_ = -1;
    if (!write_kept(false)) write_when_ready();
  });
}

void Console::finish() {
  use(nullptr);
  write_kept(true);
}

void Console::wipe() {
  if (!rewrites_ || shown_.empty()) return;
  write(STDERR_FILENO, "\r" + std::string(shown_.size(), ' ') + "\r");
}

void Console::say(std::string_view text) {
  wipe();
  write(STDERR_FILENO, str_cat(program_, ": ", text, "\n"));
  if (rewrites_) write(STDERR_FILENO, shown_);
}

void Console::complain(std::string_view text) {
  if (!colour_) return say(text);
  const size_t end = std::min(text.find('\n'), text.size());
  say(str_cat("\x1b[31m", text.substr(0, end), "\x1b[0m", text.substr(end)));
}

void Console::tee(std::string_view title, std::string_view line) {
  wipe();
  write(STDOUT_FILENO, str_cat("[", title, "] ", line, "\n"));
  if (rewrites_) write(STDERR_FILENO, shown_);
}

void Console::print(std::string_view text) {
  wipe();
  write(STDOUT_FILENO, std::string(text));
  if (rewrites_) write(STDERR_FILENO, shown_);
}

void Console::show_progress(const std::string& line) {
  if (behind()) return;  // there will be a newer one
  if (!rewrites_) return write(STDERR_FILENO, line + "\n");
  const std::string cut = line.substr(0, terminal_width() - 1);
  const size_t stale = shown_.size() > cut.size() ? shown_.size() - cut.size() : 0;
  write(STDERR_FILENO, "\r" + cut + std::string(stale, ' ') + std::string(stale, '\b'));
  shown_ = cut;
}

void Console::finish_progress() {
  if (rewrites_ && !shown_.empty()) write(STDERR_FILENO, "\n");
  shown_.clear();
}

std::string seconds_text(Duration duration) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << std::chrono::duration<double>(duration).count()
      << " s";
  return std::move(out).str();
}

std::string counted(int count, std::string_view noun) {
  return str_cat(count, " ", noun, count == 1 ? "" : noun.ends_with('s') ? "es" : "s");
}

}  // namespace fleet::launch

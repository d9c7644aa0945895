#include "launch/console.h"

#include <cerrno>
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

void Console::write(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count > 0) {
      done += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      if (::poll(&writable, 1, 1000) <= 0) return;  // nobody reads: the job matters more
    } else if (errno != EINTR) {
      return;
    }
  }
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

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

ProgressBoard::ProgressBoard(int workers, int servers, TimePoint start)
    : workers_(workers), servers_(servers), start_(start) {}

bool ProgressBoard::update(int worker, std::string_view line) {
  const std::vector<std::string> words = split(trim(line), ' ');
  if (words.empty() || words.front() != "progress") return false;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos || equals == 0) continue;
    std::string value = words[i].substr(equals + 1, 32);
    for (char& c : value) {
      if (static_cast<unsigned char>(c) < 0x20) c = '?';
    }
    latest_[worker].insert_or_assign(words[i].substr(0, equals), std::move(value));
  }
  return true;
}

std::string ProgressBoard::values_of_first() const {
  if (latest_.empty()) return "  running";
  std::string text;
  const Values& values = latest_.begin()->second;
  const auto add = [&](const std::string& key) {
    const auto found = values.find(key);
    if (found == values.end()) return;
    text +=
        key == "steps_per_s" ? "  " + found->second + " steps/s" : "  " + key + " " + found->second;
  };
  for (const char* key : {"step", "loss", "steps_per_s"}) add(key);
  for (const auto& [key, value] : values) {
    if (key != "step" && key != "loss" && key != "steps_per_s") add(key);
  }
  return text;
}

std::string ProgressBoard::slowest() const {
  std::optional<long long> first;
  std::optional<long long> lowest;
  int who = 0;
  for (const auto& [worker, values] : latest_) {
    const auto found = values.find("step");
    const auto step = found == values.end() ? std::nullopt : parse_int(found->second);
    if (!step) continue;
    if (!first) first = step;
    if (lowest && *lowest <= *step) continue;
    lowest = step;
    who = worker;
  }
  if (!lowest || *lowest >= *first) return "";
  return str_cat("  (worker ", who, " at step ", *lowest, ")");
}

std::string ProgressBoard::line(TimePoint now) const {
  std::string text = seconds_text(now - start_) + "  " + counted(workers_, "worker");
  if (servers_ > 0) text += ", " + counted(servers_, "server");
  text += values_of_first() + slowest();
  if (ended_ > 0) text += str_cat("  ", ended_, " done");
  return text;
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

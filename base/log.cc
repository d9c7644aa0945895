#include "base/log.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace fleet {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warning", "error", "off"};

std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since_epoch = now.time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(ms));
  return text;
}

bool needs_quotes(std::string_view value) {
  return value.empty() || value.find_first_of(" \t\n\"=") != std::string_view::npos;
}

void append_value(std::string& line, std::string_view value) {
  if (!needs_quotes(value)) {
    line.append(value);
    return;
  }
  line.push_back('"');
  for (const char c : value) {
    if (c == '\n') {
      line.append("\\n");
      continue;
    }
    if (c == '"' || c == '\\') line.push_back('\\');
    line.push_back(c);
  }
  line.push_back('"');
}

void write_stderr(LogLevel, std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

struct Logger::State {
  std::atomic<LogLevel> level{LogLevel::kWarning};
  std::mutex mutex;  // guards identity, and keeps lines whole
  std::string identity = "-";
  Sink sink = write_stderr;
};

LogLevel parse_log_level(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  }
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "unknown log level",
               .where = "FLEET_LOG_LEVEL",
               .expected = join(kNames, ", "),
               .got = std::string(text),
               .fix = "set FLEET_LOG_LEVEL to one of the names above"});
}

Logger::Logger() : state_(std::make_shared<State>()) {}

Logger::Logger(LogLevel level, Sink sink) : Logger() {
  state_->level = level;
  if (sink) state_->sink = std::move(sink);
}

void Logger::set_level(LogLevel level) {
  state_->level = level;
}

void Logger::set_identity(std::string identity) {
  const std::lock_guard lock(state_->mutex);
  state_->identity = std::move(identity);
}

bool Logger::enabled(LogLevel level) const {
  return level >= state_->level.load();
}

void Logger::write(LogLevel level, std::string_view component, std::string_view message,
                   std::initializer_list<LogField> fields) const {
  if (!enabled(level)) return;
  std::string tail = str_cat(" ", component, " ", message);
  for (const LogField& field : fields) {
    tail.append(" ").append(field.key).append("=");
    append_value(tail, field.value);
  }
  tail.push_back('\n');
  const std::lock_guard lock(state_->mutex);
  state_->sink(level, str_cat(timestamp(), " ", kNames[static_cast<size_t>(level)], " ",
                              state_->identity, tail));
}

}  // namespace fleet

// Log lines of the form: time level role/rank component message key=value …
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace fleet {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error" or "off"; throws UsageError for anything else.
LogLevel parse_log_level(std::string_view text);

struct LogField {
  template <class T>
  LogField(std::string_view key_, const T& value_) : key(key_), value(str_cat(value_)) {}
  std::string_view key;
  std::string value;
};

// A handle to a log. Copies share the same sink, level and identity; every member may be called
// from any thread. A default-made Logger writes warnings and errors to stderr.
class Logger {
 public:
  using Sink = std::function<void(LogLevel, std::string_view line)>;

  Logger();
  explicit Logger(LogLevel level, Sink sink = nullptr);

  void set_level(LogLevel level);
  // Who speaks, such as "worker/1".
  void set_identity(std::string identity);
  bool enabled(LogLevel level) const;

  void write(LogLevel level, std::string_view component, std::string_view message,
             std::initializer_list<LogField> fields = {}) const;
  void debug(std::string_view component, std::string_view message,
             std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kDebug, component, message, fields);
  }
  void info(std::string_view component, std::string_view message,
            std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kInfo, component, message, fields);
  }
  void warning(std::string_view component, std::string_view message,
               std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kWarning, component, message, fields);
  }
  void error(std::string_view component, std::string_view message,
             std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kError, component, message, fields);
  }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fleet

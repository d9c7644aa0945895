// Values for expected failures: a Status, or a Result<T> that holds a value or a Status.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "base/error.h"

namespace fleet {

// Copies share their text. An ok Status has none: it is made and given up for every message.
class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(ErrorCode code, ErrorText text)
      : code_(code), text_(std::make_shared<const ErrorText>(std::move(text))) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  ErrorCode code() const { return code_; }
  // What went wrong; empty where nothing did. Valid as long as this Status.
  const ErrorText& text() const {
    static const ErrorText kNone;
    return text_ ? *text_ : kNone;
  }
  std::string to_string() const { return ok() ? "ok" : text().to_string(); }

  // Throws the matching Error unless ok.
  void throw_if_error() const {
    if (!ok()) throw_error(code_, text());
  }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::shared_ptr<const ErrorText> text_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) {}

  bool ok() const { return state_.index() == 0; }
  // The status of a failed result; an ok Status otherwise.
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  T& value() & {
    throw_if_error();
    return std::get<0>(state_);
  }
  const T& value() const& {
    throw_if_error();
    return std::get<0>(state_);
  }
  T&& value() && {
    throw_if_error();
    return std::get<0>(std::move(state_));
  }

 private:
  void throw_if_error() const {
    if (!ok()) std::get<1>(state_).throw_if_error();
  }

  std::variant<T, Status> state_;
};

}  // namespace fleet

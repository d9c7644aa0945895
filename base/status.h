// Values for expected failures: a Status, or a Result<T> that holds a value or a Status.
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"

namespace fleet {

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(ErrorCode code, ErrorText text) : code_(code), text_(std::move(text)) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  ErrorCode code() const { return code_; }
  const ErrorText& text() const { return text_; }
  std::string to_string() const { return ok() ? "ok" : text_.to_string(); }

  // Throws the matching Error unless ok.
  void throw_if_error() const {
    if (!ok()) throw_error(code_, text_);
  }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  ErrorText text_;
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
    status().throw_if_error();
    return std::get<0>(state_);
  }
  const T& value() const& {
    status().throw_if_error();
    return std::get<0>(state_);
  }
  T&& value() && {
    status().throw_if_error();
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Status> state_;
};

}  // namespace fleet

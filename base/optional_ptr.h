// An optional value on the heap, for values that few of many have.
#pragma once

#include <memory>
#include <optional>
#include <utility>

namespace fleet {

// An optional value that is seldom there: no larger than a pointer while it is not. Copies have
// values of their own.
template <class T>
class OptionalPtr {
 public:
  OptionalPtr() = default;
  OptionalPtr(T value) : value_(std::make_unique<T>(std::move(value))) {}
  OptionalPtr(std::optional<T> value) {
    if (value) value_ = std::make_unique<T>(std::move(*value));
  }
  OptionalPtr(const OptionalPtr& other) : value_(other ? std::make_unique<T>(*other) : nullptr) {}
  OptionalPtr(OptionalPtr&& other) noexcept = default;
  OptionalPtr& operator=(OptionalPtr other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~OptionalPtr() = default;

  explicit operator bool() const { return value_ != nullptr; }
  bool has_value() const { return value_ != nullptr; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

  std::optional<T> to_optional() const { return value_ ? std::optional<T>(*value_) : std::nullopt; }
  bool operator==(const OptionalPtr& other) const {
    return value_ && other.value_ ? *value_ == *other.value_ : value_ == other.value_;
  }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace fleet

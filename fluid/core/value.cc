#include "fluid/core/value.h"

namespace fleet::fluid {
namespace {

void copy_tensor(const Tensor& from, Tensor& to, const Place& place) {
  if (!from.initialized()) {
    to = from;
    return;
  }
  const bool fits = to.initialized() && to.place() == place && to.dtype() == from.dtype() &&
                    to.shape() == from.shape();
  if (!fits) to.reset(from.dtype(), from.shape(), place);
  to.copy_from(from);
  to.share_lod(from);
}

void move_tensor(Tensor& tensor, const Place& place) {
  if (tensor.initialized() && !(tensor.place() == place)) tensor = tensor.copy_to(place);
}

// The value as a T, which it becomes if it is something else.
template <class T>
T& as(Value& value) {
  if (!std::holds_alternative<T>(value)) value = T();
  return *std::get_if<T>(&value);
}

}  // namespace

Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

void copy_value(const Value& from, Value& to, const Place& place) {
  if (const auto* tensor = std::get_if<Tensor>(&from)) {
    copy_tensor(*tensor, as<Tensor>(to), place);
  } else if (const auto* rows = std::get_if<SelectedRows>(&from)) {
    auto& copy = as<SelectedRows>(to);
    copy.rows = rows->rows;
    copy.height = rows->height;
    copy_tensor(rows->value, copy.value, place);
  } else {
    to = from;
  }
}

void move_value(Value& value, const Place& place) {
  if (auto* tensor = std::get_if<Tensor>(&value)) move_tensor(*tensor, place);
  if (auto* rows = std::get_if<SelectedRows>(&value)) move_tensor(rows->value, place);
}

}  // namespace fleet::fluid

// Bytes of Paddle's files: fixed-size numbers and protobuf messages, read with bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/core/dtype.h"

namespace fleet::fluid::paddle {

using Bytes = std::span<const std::byte>;

// A number from the front of `bytes`, which moves on; nothing when it is too short.
template <class T>
std::optional<T> take(Bytes& bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

template <class T>
void put(std::vector<std::byte>& out, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), raw, raw + sizeof(T));
}

// One field of a message: a number (varint, or the bits of a fixed-size one) or bytes.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  Bytes bytes;
  bool has_bytes = false;

  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

// The fields of a message in order; nothing when it is malformed.
std::optional<std::vector<Field>> fields_of(Bytes message);

// A repeated number, packed or not: appends what the field holds; false when it is malformed.
bool append_numbers(const Field& field, std::vector<int64_t>& out);
// The same for 32-bit floats.
bool append_floats(const Field& field, std::vector<double>& out);

void put_varint(std::vector<std::byte>& out, uint64_t value);

// The codes of element types in Paddle's files; nothing for one that is not there.
std::optional<DType> dtype_of_code(uint64_t code);
std::optional<uint64_t> code_of_dtype(DType dtype);

}  // namespace fleet::fluid::paddle

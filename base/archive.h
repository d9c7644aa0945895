// Binary cereal archives for control data and files: little-endian, no polymorphic types. The
// input side treats its bytes as hostile: it checks the bytes that remain before every
// allocation and bounds the nesting depth.
//
// Supported members: arithmetic types, enums, std::string, std::vector, std::map, std::pair,
// std::optional, std::variant, and structs with a cereal `serialize` function.
#pragma once

#include <bit>
#include <cereal/cereal.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace fleet {

static_assert(std::endian::native == std::endian::little,
              "the wire and file formats are little-endian and written from memory");

class BinaryOutput : public cereal::OutputArchive<BinaryOutput, cereal::AllowEmptyClassElision> {
 public:
  BinaryOutput();
  ~BinaryOutput() override;
  BinaryOutput(const BinaryOutput&) = delete;
  BinaryOutput& operator=(const BinaryOutput&) = delete;
  void write(const void* data, size_t bytes);
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Throws Error with code kBadFrame when the bytes do not fit; decode() turns that into a Result.
class BinaryInput : public cereal::InputArchive<BinaryInput, cereal::AllowEmptyClassElision> {
 public:
  static constexpr int kMaxDepth = 32;

  explicit BinaryInput(std::span<const std::byte> bytes);
  ~BinaryInput() override;
  BinaryInput(const BinaryInput&) = delete;
  BinaryInput& operator=(const BinaryInput&) = delete;
  void read(void* data, size_t bytes);
  size_t remaining() const { return rest_.size(); }

  // A count of elements that take at least `element_bytes` each; fails when they cannot all be
  // in what remains.
  size_t read_count(size_t element_bytes);
  [[noreturn]] static void fail(std::string what);

  class Nested {
   public:
    explicit Nested(BinaryInput& input);
    ~Nested() { --input_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    BinaryInput& input_;
  };

 private:
  std::span<const std::byte> rest_;
  int depth_ = 0;
};

template <class T>
concept PlainValue = std::is_arithmetic_v<T>;

template <PlainValue T>
void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const T& value) {
  out.write(&value, sizeof value);
}

template <PlainValue T>
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    uint8_t byte = 0;
    in.read(&byte, 1);
    if (byte > 1) BinaryInput::fail("a boolean is neither 0 nor 1");
    value = byte == 1;
  } else {
    in.read(&value, sizeof value);
  }
}

template <class T>
void CEREAL_SERIALIZE_FUNCTION_NAME(BinaryOutput& out, cereal::NameValuePair<T>& pair) {
  out(pair.value);
}

template <class T>
void CEREAL_SERIALIZE_FUNCTION_NAME(BinaryInput& in, cereal::NameValuePair<T>& pair) {
  in(pair.value);
}

void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::string& text);
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::string& text);

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::vector<T>& items) {
  out(static_cast<uint32_t>(items.size()));
  if constexpr (PlainValue<T> && !std::is_same_v<T, bool>) {
    out.write(items.data(), items.size() * sizeof(T));
  } else {
    for (const auto& item : items) out(static_cast<const T&>(item));
  }
}

template <class T>
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::vector<T>& items) {
  const BinaryInput::Nested nested(in);
  if constexpr (PlainValue<T> && !std::is_same_v<T, bool>) {
    items.resize(in.read_count(sizeof(T)));
    in.read(items.data(), items.size() * sizeof(T));
  } else {
    // Elements are appended one by one, so that memory never runs ahead of the bytes.
    const size_t count = in.read_count(1);
    items.clear();
    for (size_t i = 0; i < count; ++i) {
      T item{};
      in(item);
      items.push_back(std::move(item));
    }
  }
}

template <class A, class B>
void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::pair<A, B>& pair) {
  out(pair.first, pair.second);
}

template <class A, class B>
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::pair<A, B>& pair) {
  in(pair.first, pair.second);
}

template <class K, class V>
void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::map<K, V>& map) {
  out(static_cast<uint32_t>(map.size()));
  for (const auto& [key, value] : map) out(key, value);
}

template <class K, class V>
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::map<K, V>& map) {
  const BinaryInput::Nested nested(in);
  const size_t count = in.read_count(1);
  map.clear();
  for (size_t i = 0; i < count; ++i) {
    std::pair<K, V> item;
    in(item.first, item.second);
    if (!map.insert(std::move(item)).second) BinaryInput::fail("a key occurs twice in a map");
  }
}

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::optional<T>& value) {
  out(value.has_value());
  if (value) out(*value);
}

template <class T>
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::optional<T>& value) {
  bool present = false;
  in(present);
  value.reset();
  if (present) in(value.emplace());
}

template <class... Ts>
void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::variant<Ts...>& value) {
  out(static_cast<uint8_t>(value.index()));
  std::visit([&out](const auto& member) { out(member); }, value);
}

template <class... Ts>
void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::variant<Ts...>& value) {
  const BinaryInput::Nested nested(in);
  uint8_t index = 0;
  in(index);
  if (index >= sizeof...(Ts)) BinaryInput::fail("a variant names an alternative that is not there");
  uint8_t current = 0;
  const auto load_one = [&]<class T>(std::type_identity<T>) {
    if (current++ != index) return;
    T member{};
    in(member);
    value = std::move(member);
  };
  (load_one(std::type_identity<Ts>{}), ...);
}

// The value as bytes.
template <class T>
std::vector<std::byte> encode(const T& value) {
  BinaryOutput out;
  out(value);
  return out.take();
}

// The value that the bytes hold; every byte must be used. `what` names it in the error.
template <class T>
Result<T> decode(std::span<const std::byte> bytes, std::string_view what) {
  try {
    BinaryInput in(bytes);
    T value{};
    in(value);
    if (in.remaining() != 0) BinaryInput::fail("bytes are left over at the end");
    return value;
  } catch (const Error& error) {
    ErrorText text = error.text();
    text.where = std::string(what);
    return Status(error.code(), std::move(text));
  }
}

}  // namespace fleet

CEREAL_REGISTER_ARCHIVE(fleet::BinaryOutput)
CEREAL_REGISTER_ARCHIVE(fleet::BinaryInput)
CEREAL_SETUP_ARCHIVE_TRAITS(fleet::BinaryInput, fleet::BinaryOutput)

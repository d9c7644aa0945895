#include "fluid/io/paddle_wire.h"

#include <array>
#include <bit>
#include <utility>

namespace fleet::fluid::paddle {
namespace {

std::optional<uint64_t> take_varint(Bytes& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint64_t>(bytes.front());
    bytes = bytes.subspan(1);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<Field> take_field(Bytes& bytes) {
  const auto key = take_varint(bytes);
  if (!key || *key >> 3 == 0 || *key >> 35 != 0) return std::nullopt;
  Field field{.number = static_cast<uint32_t>(*key >> 3)};
  const auto fixed = [&](auto number) {
    if (number) field.value = static_cast<uint64_t>(*number);
    return number.has_value();
  };
  switch (*key & 7) {
    case 0:
      if (!fixed(take_varint(bytes))) return std::nullopt;
      return field;
    case 1:
      if (!fixed(take<uint64_t>(bytes))) return std::nullopt;
      return field;
    case 5:
      if (!fixed(take<uint32_t>(bytes))) return std::nullopt;
      return field;
    case 2: {
      const auto size = take_varint(bytes);
      if (!size || *size > bytes.size()) return std::nullopt;
      field.bytes = bytes.first(static_cast<size_t>(*size));
      field.has_bytes = true;
      bytes = bytes.subspan(static_cast<size_t>(*size));
      return field;
    }
    default:
      return std::nullopt;
  }
}

constexpr std::array<std::pair<uint64_t, DType>, 9> kCodes = {{{0, DType::kBool},
                                                               {1, DType::kInt16},
                                                               {2, DType::kInt32},
                                                               {3, DType::kInt64},
                                                               {4, DType::kFloat16},
                                                               {5, DType::kFloat32},
                                                               {6, DType::kFloat64},
                                                               {20, DType::kUInt8},
                                                               {21, DType::kInt8}}};

}  // namespace

std::optional<std::vector<Field>> fields_of(Bytes message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const auto field = take_field(message);
    if (!field) return std::nullopt;
    fields.push_back(*field);
  }
  return fields;
}

bool append_numbers(const Field& field, std::vector<int64_t>& out) {
  if (!field.has_bytes) {
    out.push_back(static_cast<int64_t>(field.value));
    return true;
  }
  Bytes packed = field.bytes;
  while (!packed.empty()) {
    const auto number = take_varint(packed);
    if (!number) return false;
    out.push_back(static_cast<int64_t>(*number));
  }
  return true;
}

bool append_floats(const Field& field, std::vector<double>& out) {
  if (!field.has_bytes) {
    out.push_back(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(field.value))));
    return true;
  }
  Bytes packed = field.bytes;
  while (!packed.empty()) {
    const auto number = take<float>(packed);
    if (!number) return false;
    out.push_back(static_cast<double>(*number));
  }
  return true;
}

void put_varint(std::vector<std::byte>& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

std::optional<DType> dtype_of_code(uint64_t code) {
  for (const auto& [known, dtype] : kCodes) {
    if (known == code) return dtype;
  }
  return std::nullopt;
}

std::optional<uint64_t> code_of_dtype(DType dtype) {
  for (const auto& [code, known] : kCodes) {
    if (known == dtype) return code;
  }
  return std::nullopt;
}

}  // namespace fleet::fluid::paddle

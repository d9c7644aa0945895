// Attributes of operators: a loosely typed map in the program, a struct in the code.
//
// An op's attributes are a struct with one `serialize` function and default member values. From it
// come parsing with checks, defaults, printing, comparison, JSON and binary:
//
//   struct ScaleAttrs {
//     float scale = 1.0f;
//     float bias = 0.0f;
//     template <class Archive>
//     void serialize(Archive& ar) { ar(CEREAL_NVP(scale), CEREAL_NVP(bias)); }
//   };
#pragma once

#include <cereal/cereal.hpp>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "fluid/core/dtype.h"

namespace fleet::fluid {

// A reference to a sub-block of the same program.
struct BlockRef {
  int32_t index = -1;
  bool operator==(const BlockRef&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(index));
  }
};

// Element types are held by name ("float32"), 32-bit floats as the double of the same value.
using Attribute =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                 std::vector<std::string>, BlockRef, std::vector<BlockRef>>;
using AttributeMap = std::map<std::string, Attribute, std::less<>>;

std::string to_string(const Attribute& attribute);
// "a float", "a list of texts", …
std::string_view kind_name(const Attribute& attribute);

namespace internal {

// Conversions between members of attribute structs and Attribute. An integer is taken where a
// number is wanted, and an empty list of any kind where a list is wanted.
Attribute pack(bool value);
Attribute pack(int32_t value);
Attribute pack(int64_t value);
Attribute pack(float value);
Attribute pack(double value);
Attribute pack(const std::string& value);
Attribute pack(DType value);
Attribute pack(const std::vector<int32_t>& value);
Attribute pack(const std::vector<int64_t>& value);
Attribute pack(const std::vector<float>& value);
Attribute pack(const std::vector<double>& value);
Attribute pack(const std::vector<std::string>& value);
Attribute pack(BlockRef value);
Attribute pack(const std::vector<BlockRef>& value);

// False when the attribute is of another kind or out of range.
bool unpack(const Attribute& from, bool& to);
bool unpack(const Attribute& from, int32_t& to);
bool unpack(const Attribute& from, int64_t& to);
bool unpack(const Attribute& from, float& to);
bool unpack(const Attribute& from, double& to);
bool unpack(const Attribute& from, std::string& to);
bool unpack(const Attribute& from, DType& to);
bool unpack(const Attribute& from, std::vector<int32_t>& to);
bool unpack(const Attribute& from, std::vector<int64_t>& to);
bool unpack(const Attribute& from, std::vector<float>& to);
bool unpack(const Attribute& from, std::vector<double>& to);
bool unpack(const Attribute& from, std::vector<std::string>& to);
bool unpack(const Attribute& from, BlockRef& to);
bool unpack(const Attribute& from, std::vector<BlockRef>& to);

[[noreturn]] void throw_wrong_kind(std::string_view op_type, std::string_view name,
                                   const Attribute& expected, const Attribute& got);
void check_all_known(std::string_view op_type, const AttributeMap& map,
                     const std::set<std::string, std::less<>>& known);

class AttributeWriter {
 public:
  explicit AttributeWriter(AttributeMap& map) : map_(map) {}
  template <class... Pairs>
  void operator()(Pairs&&... pairs) {
    (map_.insert_or_assign(pairs.name, pack(pairs.value)), ...);
  }

 private:
  AttributeMap& map_;
};

class AttributeReader {
 public:
  AttributeReader(std::string_view op_type, const AttributeMap& map)
      : op_type_(op_type), map_(map) {}
  template <class... Pairs>
  void operator()(Pairs&&... pairs) {
    (read(pairs), ...);
  }
  void finish() const { check_all_known(op_type_, map_, known_); }

 private:
  template <class Pair>
  void read(Pair& pair) {
    known_.emplace(pair.name);
    const auto found = map_.find(std::string_view(pair.name));
    if (found == map_.end()) return;
    if (!unpack(found->second, pair.value)) {
      throw_wrong_kind(op_type_, pair.name, pack(pair.value), found->second);
    }
  }

  std::string_view op_type_;
  const AttributeMap& map_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace internal

// Every attribute of the struct, defaults included.
template <class Attrs>
AttributeMap to_attributes(Attrs attrs) {
  AttributeMap map;
  internal::AttributeWriter writer(map);
  attrs.serialize(writer);
  return map;
}

// The struct that the map describes; what is absent keeps its default. Throws ProgramError that
// names op and attribute for an unknown name or a value of the wrong kind.
template <class Attrs>
Attrs parse_attributes(std::string_view op_type, const AttributeMap& map) {
  Attrs attrs;
  internal::AttributeReader reader(op_type, map);
  attrs.serialize(reader);
  reader.finish();
  return attrs;
}

}  // namespace fleet::fluid

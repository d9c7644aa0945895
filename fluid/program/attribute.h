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
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fluid/core/dtype.h"
#include "fluid/program/shared.h"

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

using AttributeKinds =
    std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                 std::vector<std::string>, BlockRef, std::vector<BlockRef>>;

// Element types are held by name ("float32"), 32-bit floats as the double of the same value. A type
// of its own for the reason of Value's (fluid/core/value.h).
struct Attribute : AttributeKinds {
  using AttributeKinds::AttributeKinds;
  Attribute();  // false
  Attribute(const Attribute& other);
  Attribute(Attribute&& other) noexcept;
  Attribute& operator=(const Attribute& other);
  Attribute& operator=(Attribute&& other) noexcept;
  ~Attribute();
};

// Attributes by name, in alphabetical order. Copies share them until one changes its own. A change
// ends the life of iterators and of references to attributes.
class AttributeMap {
 public:
  using value_type = std::pair<std::string, Attribute>;
  using const_iterator = const value_type*;

  AttributeMap();
  // Of several with one name the first counts.
  AttributeMap(std::initializer_list<value_type> entries);
  explicit AttributeMap(std::vector<value_type> entries);
  AttributeMap(const AttributeMap& other);
  AttributeMap(AttributeMap&& other) noexcept;
  AttributeMap& operator=(AttributeMap other) noexcept;
  ~AttributeMap();

  const_iterator begin() const { return entries_ ? entries_->data() : nullptr; }
  const_iterator end() const { return entries_ ? entries_->data() + entries_->size() : nullptr; }
  size_t size() const { return static_cast<size_t>(end() - begin()); }
  bool empty() const { return begin() == end(); }

  const_iterator find(std::string_view name) const;  // end() when there is none
  bool contains(std::string_view name) const { return find(name) != end(); }
  // Throws std::out_of_range that names the attribute.
  const Attribute& at(std::string_view name) const;

  // For a change; false, as Attribute begins, when there was none.
  Attribute& operator[](std::string_view name);
  void erase(std::string_view name);

  // Copies of one map that nobody has changed: equal without a look at the attributes.
  bool shares_with(const AttributeMap& other) const { return begin() == other.begin(); }
  bool operator==(const AttributeMap& other) const;

 private:
  Shared<std::vector<value_type>> entries_;  // empty, or sorted by name
};

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
                     std::span<const std::string_view> known);

class AttributeWriter {
 public:
  template <class... Pairs>
  void operator()(Pairs&&... pairs) {
    entries_.reserve(entries_.size() + sizeof...(pairs));
    (entries_.emplace_back(pairs.name, pack(pairs.value)), ...);
  }
  AttributeMap finish() { return AttributeMap(std::move(entries_)); }

 private:
  std::vector<AttributeMap::value_type> entries_;
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
    known_.emplace_back(pair.name);
    const auto found = map_.find(pair.name);
    if (found == map_.end()) return;
    if (!unpack(found->second, pair.value)) {
      throw_wrong_kind(op_type_, pair.name, pack(pair.value), found->second);
    }
  }

  std::string_view op_type_;
  const AttributeMap& map_;
  std::vector<std::string_view> known_;
};

}  // namespace internal

// Every attribute of the struct, defaults included.
template <class Attrs>
AttributeMap to_attributes(Attrs attrs) {
  internal::AttributeWriter writer;
  attrs.serialize(writer);
  return writer.finish();
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

#include "fluid/program/attribute.h"

#include <array>
#include <limits>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

template <class T>
std::string list_text(const std::vector<T>& items) {
  std::vector<std::string> texts;
  texts.reserve(items.size());
  for (const T& item : items) texts.push_back(to_string(Attribute(item)));
  return "[" + join(texts, ", ") + "]";
}

struct Printer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const {
    std::string text = shortest(value);
    if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
    return text;
  }
  std::string operator()(const std::string& value) const { return "'" + value + "'"; }
  std::string operator()(BlockRef value) const { return str_cat("block[", value.index, "]"); }
  template <class T>
  std::string operator()(const std::vector<T>& value) const {
    return list_text(value);
  }
};

// True for a list of any kind without elements.
bool empty_list(const Attribute& attribute) {
  return std::visit(
      []<class T>(const T& value) {
        if constexpr (requires { value.front(); } && !std::is_same_v<T, std::string>) {
          return value.empty();
        }
        return false;
      },
      attribute);
}

// Where an attribute of the name is, or would be.
template <class Iterator>
Iterator first_from(Iterator begin, Iterator end, std::string_view name) {
  return std::lower_bound(begin, end, name,
                          [](const auto& entry, std::string_view at) { return entry.first < at; });
}

template <class T>
bool take(const Attribute& from, T& to) {
  const T* value = std::get_if<T>(&from);
  if (value == nullptr) return false;
  to = *value;
  return true;
}

template <class T>
bool unpack_list(const Attribute& from, std::vector<T>& to) {
  if (empty_list(from)) {
    to.clear();
    return true;
  }
  const auto convert = [&to](const auto& items) {
    std::vector<T> out;
    for (const auto& item : items) {
      T element{};
      if (!internal::unpack(Attribute(item), element)) return false;
      out.push_back(std::move(element));
    }
    to = std::move(out);
    return true;
  };
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&from)) return convert(*ints);
  if (const auto* reals = std::get_if<std::vector<double>>(&from)) return convert(*reals);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&from)) return convert(*texts);
  if (const auto* blocks = std::get_if<std::vector<BlockRef>>(&from)) return convert(*blocks);
  return false;
}

}  // namespace

Attribute::Attribute() = default;
Attribute::Attribute(const Attribute& other) = default;
Attribute::Attribute(Attribute&& other) noexcept = default;
Attribute& Attribute::operator=(const Attribute& other) = default;
Attribute& Attribute::operator=(Attribute&& other) noexcept = default;
Attribute::~Attribute() = default;

std::string to_string(const Attribute& attribute) {
  return std::visit(Printer{}, attribute);
}

std::string_view kind_name(const Attribute& attribute) {
  constexpr std::array<std::string_view, 9> kKinds = {
      "a boolean",         "an integer",      "a number", "a text",          "a list of integers",
      "a list of numbers", "a list of texts", "a block",  "a list of blocks"};
  return kKinds[attribute.index()];
}

AttributeMap::AttributeMap() = default;
AttributeMap::AttributeMap(const AttributeMap& other) = default;
AttributeMap::AttributeMap(AttributeMap&& other) noexcept = default;
AttributeMap::~AttributeMap() = default;

AttributeMap& AttributeMap::operator=(AttributeMap other) noexcept {
  entries_ = std::move(other.entries_);
  return *this;
}

AttributeMap::AttributeMap(std::initializer_list<value_type> entries)
    : AttributeMap(std::vector<value_type>(entries)) {}

AttributeMap::AttributeMap(std::vector<value_type> entries) {
  if (entries.empty()) return;
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  std::stable_sort(entries.begin(), entries.end(), before);
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
  entries_ = Shared(std::move(entries));
}

AttributeMap::const_iterator AttributeMap::find(std::string_view name) const {
  const auto found = first_from(begin(), end(), name);
  return found != end() && found->first == name ? found : end();
}

const Attribute& AttributeMap::at(std::string_view name) const {
  const auto found = find(name);
  if (found == end()) throw std::out_of_range(str_cat("no attribute '", name, "'"));
  return found->second;
}

Attribute& AttributeMap::operator[](std::string_view name) {
  if (!entries_) entries_ = Shared(std::vector<value_type>());
  auto& entries = entries_.edit();
  const auto found = first_from(entries.begin(), entries.end(), name);
  if (found != entries.end() && found->first == name) return found->second;
  return entries.emplace(found, name, false)->second;
}

void AttributeMap::erase(std::string_view name) {
  const auto found = find(name);
  if (found == end()) return;
  const auto position = found - begin();
  auto& entries = entries_.edit();
  entries.erase(entries.begin() + position);
}

bool AttributeMap::operator==(const AttributeMap& other) const {
  return shares_with(other) || std::equal(begin(), end(), other.begin(), other.end());
}

namespace internal {

Attribute pack(bool value) {
  return value;
}
Attribute pack(int32_t value) {
  return int64_t{value};
}
Attribute pack(int64_t value) {
  return value;
}
Attribute pack(float value) {
  return double{value};
}
Attribute pack(double value) {
  return value;
}
Attribute pack(const std::string& value) {
  return value;
}
Attribute pack(DType value) {
  return std::string(dtype_name(value));
}
Attribute pack(const std::vector<int32_t>& value) {
  return std::vector<int64_t>(value.begin(), value.end());
}
Attribute pack(const std::vector<int64_t>& value) {
  return value;
}
Attribute pack(const std::vector<float>& value) {
  return std::vector<double>(value.begin(), value.end());
}
Attribute pack(const std::vector<double>& value) {
  return value;
}
Attribute pack(const std::vector<std::string>& value) {
  return value;
}
Attribute pack(BlockRef value) {
  return value;
}
Attribute pack(const std::vector<BlockRef>& value) {
  return value;
}

bool unpack(const Attribute& from, bool& to) {
  return take(from, to);
}
bool unpack(const Attribute& from, int64_t& to) {
  return take(from, to);
}
bool unpack(const Attribute& from, int32_t& to) {
  int64_t wide = 0;
  if (!take(from, wide) || wide < std::numeric_limits<int32_t>::min() ||
      wide > std::numeric_limits<int32_t>::max()) {
    return false;
  }
  to = static_cast<int32_t>(wide);
  return true;
}
bool unpack(const Attribute& from, double& to) {
  if (const auto* integer = std::get_if<int64_t>(&from)) {
    to = static_cast<double>(*integer);
    return true;
  }
  return take(from, to);
}
bool unpack(const Attribute& from, float& to) {
  double wide = 0;
  if (!unpack(from, wide)) return false;
  to = static_cast<float>(wide);
  return true;
}
bool unpack(const Attribute& from, std::string& to) {
  return take(from, to);
}
bool unpack(const Attribute& from, DType& to) {
  const auto* name = std::get_if<std::string>(&from);
  if (name == nullptr) return false;
  to = parse_dtype(*name);
  return true;
}
bool unpack(const Attribute& from, std::vector<int32_t>& to) {
  return unpack_list(from, to);
}
bool unpack(const Attribute& from, std::vector<int64_t>& to) {
  return unpack_list(from, to);
}
bool unpack(const Attribute& from, std::vector<float>& to) {
  return unpack_list(from, to);
}
bool unpack(const Attribute& from, std::vector<double>& to) {
  return unpack_list(from, to);
}
bool unpack(const Attribute& from, std::vector<std::string>& to) {
  return unpack_list(from, to);
}
bool unpack(const Attribute& from, BlockRef& to) {
  return take(from, to);
}
bool unpack(const Attribute& from, std::vector<BlockRef>& to) {
  return unpack_list(from, to);
}

void throw_wrong_kind(std::string_view op_type, std::string_view name, const Attribute& expected,
                      const Attribute& got) {
  throw_error(ErrorCode::kInvalidProgram,
              {.what = str_cat("attribute '", name, "' has a value of the wrong kind"),
               .where = str_cat("op '", op_type, "'"),
               .expected = str_cat(kind_name(expected), ", such as ", to_string(expected)),
               .got = str_cat(kind_name(got), ", ", to_string(got)),
               .fix = "give the attribute a value of that kind"});
}

void check_all_known(std::string_view op_type, const AttributeMap& map,
                     std::span<const std::string_view> known) {
  for (const auto& [name, value] : map) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::vector<std::string> names(known.begin(), known.end());
    std::sort(names.begin(), names.end());
    throw_error(ErrorCode::kInvalidProgram,
                {.what = str_cat("unknown attribute '", name, "'", did_you_mean(name, names)),
                 .where = str_cat("op '", op_type, "'"),
                 .expected = names.empty() ? "no attributes" : join(names, ", "),
                 .got = str_cat(name, " = ", to_string(value)),
                 .fix = "remove or rename the attribute"});
  }
}

}  // namespace internal
}  // namespace fleet::fluid

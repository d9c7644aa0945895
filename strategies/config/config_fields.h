// Configuration structs as tables of named fields: what reads them from text and from the
// environment, and prints each value with its origin. For implementations.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {

// Where the value of a field came from, by field name; a field that is not there has its default.
using Origins = std::map<std::string, std::string>;

template <class Config>
struct ConfigField {
  std::string_view name;
  std::string_view variable;  // of the environment
  std::variant<int64_t Config::*, bool Config::*, std::string Config::*> member;
  bool secret = false;
  int64_t least = 1;           // of a number
  std::string_view note = {};  // printed behind the value
};

namespace config_detail {

// Throws UsageError; `code` is kEnvironment for a variable, kInvalidArgument for a key.
[[noreturn]] void refuse_value(ErrorCode code, std::string_view where, std::string expected,
                               const std::string& got);
[[noreturn]] void refuse_key(std::string_view where, const std::string& key,
                             const std::vector<std::string>& known);
bool read_flag(ErrorCode code, std::string_view where, const std::string& text);

}  // namespace config_detail

template <class Config>
void assign_field(Config& config, const ConfigField<Config>& field, const std::string& text,
                  ErrorCode code, std::string_view where) {
  if (const auto* number = std::get_if<int64_t Config::*>(&field.member)) {
    const auto value = parse_int(text);
    if (!value || *value < field.least) {
      config_detail::refuse_value(code, where,
                                  field.least == 1 ? "a whole number above 0"
                                                   : str_cat("a whole number from ", field.least),
                                  field.secret ? "(hidden)" : text);
    }
    config.** number = *value;
  } else if (const auto* flag = std::get_if<bool Config::*>(&field.member)) {
    config.** flag = config_detail::read_flag(code, where, text);
  } else {
    config.*std::get<std::string Config::*>(field.member) = text;
  }
}

// Sets what the environment says, and notes it.
template <class Config>
void read_environment(Config& config, const std::vector<ConfigField<Config>>& fields,
                      const Environment& environment, Origins& origins) {
  for (const auto& field : fields) {
    const auto text = environment.get(field.variable);
    if (!text) continue;
    assign_field(config, field, *text, ErrorCode::kEnvironment, field.variable);
    origins[std::string(field.name)] = std::string(field.variable);
  }
}

// Sets one field by its name; an unknown one is an error with the nearest.
template <class Config>
void assign_key(Config& config, const std::vector<ConfigField<Config>>& fields,
                std::string_view where, const std::string& key, const std::string& value,
                Origins& origins) {
  std::vector<std::string> known;
  for (const auto& field : fields) {
    if (field.name == key) {
      assign_field(config, field, value, ErrorCode::kInvalidArgument, str_cat(where, ".", key));
      origins[key] = "code";
      return;
    }
    known.emplace_back(field.name);
  }
  config_detail::refuse_key(where, key, known);
}

template <class Config>
std::string field_text(const Config& config, const ConfigField<Config>& field) {
  if (const auto* number = std::get_if<int64_t Config::*>(&field.member)) {
    return std::to_string(config.**number);
  }
  if (const auto* flag = std::get_if<bool Config::*>(&field.member)) {
    return config.**flag ? "true" : "false";
  }
  const std::string& text = config.*std::get<std::string Config::*>(field.member);
  if (text.empty()) return "(unset)";
  return field.secret ? "(hidden)" : text;
}

template <class Config>
bool same_value(const Config& a, const Config& b, const ConfigField<Config>& field) {
  return std::visit([&](const auto member) { return a.*member == b.*member; }, field.member);
}

// A line for each field: name, value, origin.
template <class Config>
std::string config_text(const Config& config, const std::vector<ConfigField<Config>>& fields,
                        const Origins& origins) {
  std::string text;
  for (const auto& field : fields) {
    const auto origin = origins.find(std::string(field.name));
    text += str_cat("  ", field.name, " = ", field_text(config, field), "  (",
                    origin == origins.end() ? "default" : origin->second, ")",
                    field.note.empty() ? "" : "  ", field.note, "\n");
  }
  return text;
}

// What the code said over what the environment said over the defaults. A value of `code` that
// differs from the default counts as said.
template <class Config>
Config merge_configs(const Config& code, const Config& environment,
                     const std::vector<ConfigField<Config>>& fields) {
  const Config defaults;
  Config merged = environment;
  for (const auto& field : fields) {
    const std::string name(field.name);
    if (code.origins.count(name) == 0 && same_value(code, defaults, field)) continue;
    std::visit([&](const auto member) { merged.*member = code.*member; }, field.member);
    merged.origins[name] = "code";
  }
  return merged;
}

}  // namespace fleet::strategies

#include "fluid/program/operator.h"

#include <algorithm>

#include "base/strings.h"

namespace fleet::fluid {
namespace {

const std::vector<std::string>& names_of(const SlotMap& slots, std::string_view slot) {
  static const std::vector<std::string> kNone;
  const auto found = slots.find(slot);
  return found == slots.end() ? kNone : found->second;
}

std::vector<std::string> all_names(const SlotMap& slots) {
  std::vector<std::string> names;
  for (const auto& [slot, in_slot] : slots) {
    std::copy_if(in_slot.begin(), in_slot.end(), std::back_inserter(names),
                 [](const std::string& name) { return !name.empty(); });
  }
  return names;
}

void rename(SlotMap& slots, std::string_view from, std::string_view to) {
  for (auto& [slot, names] : slots) {
    for (std::string& name : names) {
      if (name == from) name = to;
    }
  }
}

std::string slots_text(const SlotMap& slots) {
  std::vector<std::string> parts;
  for (const auto& [slot, names] : slots) parts.push_back(slot + "=[" + join(names, ", ") + "]");
  return join(parts, ", ");
}

}  // namespace

const std::vector<std::string>& Operator::input(std::string_view slot) const {
  return names_of(inputs, slot);
}

const std::vector<std::string>& Operator::output(std::string_view slot) const {
  return names_of(outputs, slot);
}

std::vector<std::string> Operator::input_names() const {
  return all_names(inputs);
}
std::vector<std::string> Operator::output_names() const {
  return all_names(outputs);
}

void Operator::rename_input(std::string_view from, std::string_view to) {
  rename(inputs, from, to);
}

void Operator::rename_output(std::string_view from, std::string_view to) {
  rename(outputs, from, to);
}

const Attribute* Operator::attr(std::string_view name) const {
  const auto found = attrs.find(name);
  return found == attrs.end() ? nullptr : &found->second;
}

std::string Operator::to_string() const {
  std::vector<std::string> attr_texts;
  for (const auto& [name, value] : attrs) {
    attr_texts.push_back(name + "=" + fluid::to_string(value));
  }
  std::string text =
      str_cat(slots_text(outputs), outputs.empty() ? "" : " = ", type, "(", slots_text(inputs),
              ") {", join(attr_texts, ", "), "} role=", fluid::to_string(role));
  if (!role_var.empty()) text += " role_var=[" + join(role_var, ", ") + "]";
  return text;
}

}  // namespace fleet::fluid

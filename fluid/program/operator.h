// One operator of a program.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fluid/program/attribute.h"
#include "fluid/program/op_role.h"

namespace fleet::fluid {

// Slot name -> variable names, in the order that the op defines. An empty slot and an absent one
// mean the same. An empty name inside a slot marks an output that nobody wants.
using SlotMap = std::map<std::string, std::vector<std::string>, std::less<>>;

struct Operator {
  std::string type;
  SlotMap inputs;
  SlotMap outputs;
  AttributeMap attrs;
  OpRole role = OpRole::kForward;
  // (parameter, gradient) pairs that the op belongs to, flattened.
  std::vector<std::string> role_var;
  // Where the op was made; only "…@CLIP" scopes matter to transpilers.
  std::string name_scope;

  // The names in a slot; none when the slot is absent.
  const std::vector<std::string>& input(std::string_view slot) const;
  const std::vector<std::string>& output(std::string_view slot) const;
  // All names, slot by slot, empty names left out.
  std::vector<std::string> input_names() const;
  std::vector<std::string> output_names() const;

  void rename_input(std::string_view from, std::string_view to);
  void rename_output(std::string_view from, std::string_view to);

  // Null when absent.
  const Attribute* attr(std::string_view name) const;

  // "Out=[a] = mul(X=[x], Y=[w]) {x_num_col_dims=1} role=forward"
  std::string to_string() const;
  bool operator==(const Operator&) const = default;
};

}  // namespace fleet::fluid

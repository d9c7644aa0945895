// Variables by name, for many questions about a program that nobody changes meanwhile: faster than
// the blocks' own maps.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::fluid {

class VarIndex {
 public:
  explicit VarIndex(const Program& program)
      : program_(program), own_(static_cast<size_t>(program.block_count())) {}

  // Here or in an enclosing block; null when there is none.
  const VarDesc* find(const Block& block, std::string_view name) {
    for (int32_t at = block.index(); at >= 0; at = program_.block(at).parent()) {
      const Vars& vars = own(at);
      const auto found = vars.find(name);
      if (found != vars.end()) return found->second;
    }
    return nullptr;
  }

 private:
  using Vars = std::unordered_map<std::string_view, const VarDesc*>;

  const Vars& own(int32_t index) {
    auto& vars = own_[static_cast<size_t>(index)];
    if (!vars) {
      vars.emplace();
      vars->reserve(program_.block(index).vars().size());
      for (const auto& [name, var] : program_.block(index).vars()) vars->emplace(name, var.get());
    }
    return *vars;
  }

  const Program& program_;
  std::vector<std::optional<Vars>> own_;
};

}  // namespace fleet::fluid

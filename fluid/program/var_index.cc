#include "fluid/program/var_index.h"

#include <bit>
#include <functional>

namespace fleet::fluid {
namespace {

uint32_t hash_of(std::string_view name) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(name));
}

}  // namespace

NameTable::NameTable(const Block& block) : cells_(std::bit_ceil(2 * block.vars().size() + 1)) {
  vars_.reserve(block.vars().size());
  const size_t mask = cells_.size() - 1;
  for (const auto& [name, var] : block.vars()) {
    const uint32_t hash = hash_of(name);
    size_t i = hash & mask;
    while (cells_[i].position != kEmpty) i = (i + 1) & mask;
    cells_[i] = {.hash = hash, .position = static_cast<uint32_t>(vars_.size())};
    vars_.push_back(var.get());
  }
}

const VarDesc* NameTable::find(std::string_view name) const {
  const uint32_t hash = hash_of(name);
  const size_t mask = cells_.size() - 1;
  for (size_t i = hash & mask; cells_[i].position != kEmpty; i = (i + 1) & mask) {
    const VarDesc* var = vars_[cells_[i].position];
    if (cells_[i].hash == hash && var->name == name) return var;
  }
  return nullptr;
}

const VarDesc* VarIndex::find(const Block& block, std::string_view name) {
  for (int32_t at = block.index(); at >= 0; at = program_.block(at).parent()) {
    if (const VarDesc* var = own(at).find(name)) return var;
  }
  return nullptr;
}

const NameTable& VarIndex::own(int32_t index) {
  auto& names = own_[static_cast<size_t>(index)];
  if (!names) names.emplace(program_.block(index));
  return *names;
}

}  // namespace fleet::fluid

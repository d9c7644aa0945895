#include "fluid/program/var_table.h"

#include <bit>
#include <functional>
#include <string>
#include <utility>

namespace fleet::fluid {

uint32_t VarTable::hash_of(std::string_view name) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(name));
}

size_t VarTable::find_cell(std::string_view name) const {
  if (cells_.empty()) return kNone;
  const uint32_t hash = hash_of(name);
  const size_t mask = cells_.size() - 1;
  for (size_t i = hash & mask; cells_[i].position != kEmpty; i = (i + 1) & mask) {
    if (cells_[i].hash != hash || cells_[i].position == kRemoved) continue;
    if (name_at(cells_[i].position) == name) return i;
  }
  return kNone;
}

size_t VarTable::find(std::string_view name) const {
  const size_t cell = find_cell(name);
  return cell == kNone ? kNone : cells_[cell].position;
}

VarTable::Name VarTable::keep(std::string_view name) {
  const auto begin = static_cast<uint32_t>(text_.size());
  text_ += name;
  return {.begin = begin, .size = static_cast<uint32_t>(name.size())};
}

void VarTable::enter(uint32_t hash, size_t position) {
  const size_t mask = cells_.size() - 1;
  size_t i = hash & mask;
  while (cells_[i].position != kEmpty) i = (i + 1) & mask;
  cells_[i] = {.hash = hash, .position = static_cast<uint32_t>(position)};
  ++filled_;
}

// Room for one more.
void VarTable::grow() {
  if (2 * (filled_ + 1) <= cells_.size()) return;
  const std::vector<Cell> old =
      std::exchange(cells_, std::vector<Cell>(std::bit_ceil(4 * (count_ + 1))));
  filled_ = 0;
  for (const Cell& cell : old) {
    if (cell.position != kEmpty && cell.position != kRemoved) enter(cell.hash, cell.position);
  }
}

size_t VarTable::add(VarDesc var) {
  grow();
  enter(hash_of(var.name), vars_.size());
  names_.push_back(keep(var.name));
  vars_.emplace_back(std::move(var));
  ++count_;
  return vars_.size() - 1;
}

void VarTable::remove(std::string_view name) {
  const size_t cell = find_cell(name);
  if (cell == kNone) return;
  vars_[cells_[cell].position] = {};
  cells_[cell].position = kRemoved;
  vocabulary_.number = internal::next_identity();
  --count_;
}

void VarTable::rename(std::string_view from, std::string_view to) {
  const size_t cell = find_cell(from);
  if (cell == kNone || from == to) return;
  const size_t position = cells_[cell].position;
  std::string name(to);
  remove(name);
  cells_[cell].position = kRemoved;
  names_[position] = keep(name);
  vocabulary_.number = internal::next_identity();
  grow();
  enter(hash_of(name), position);
  vars_[position].edit().name = std::move(name);
}

std::vector<const VarDesc*> VarTable::in_order() const {
  std::vector<const VarDesc*> ordered;
  ordered.reserve(count_);
  for (const Shared<VarDesc>& var : vars_) {
    if (var) ordered.push_back(var.get());
  }
  return ordered;
}

}  // namespace fleet::fluid

// The variables of a block, found by name in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/program/shared.h"
#include "fluid/program/var_desc.h"

namespace fleet::fluid {

// Positions are in order of creation, and stay. Copies share the variables until one is edited.
class VarTable {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  VarTable() = default;
  VarTable(const VarTable&) = default;
  VarTable& operator=(const VarTable&) = delete;

  size_t count() const { return count_; }
  // A number that this table alone has; another one as soon as a name has gone.
  uint64_t vocabulary() const { return vocabulary_.number; }
  size_t find(std::string_view name) const;  // kNone when there is none
  const VarDesc& at(size_t position) const { return *vars_[position]; }
  // Names are not to be changed through it.
  Shared<VarDesc>& handle(size_t position) { return vars_[position]; }

  size_t add(VarDesc var);  // of a new name
  void remove(std::string_view name);
  // One that has the new name already goes away.
  void rename(std::string_view from, std::string_view to);

  std::vector<const VarDesc*> in_order() const;

 private:
  // A part of text_.
  struct Name {
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  // A place of the hash table, which is probed cell by cell.
  struct Cell {
    uint32_t hash = 0;
    uint32_t position = kEmpty;
  };
  struct Vocabulary {
    Vocabulary() = default;
    Vocabulary(const Vocabulary&) : Vocabulary() {}  // a copy has a number of its own
    uint64_t number = internal::next_identity();
  };
  static constexpr uint32_t kEmpty = UINT32_MAX;
  static constexpr uint32_t kRemoved = UINT32_MAX - 1;

  static uint32_t hash_of(std::string_view name);
  size_t find_cell(std::string_view name) const;  // kNone when there is none
  std::string_view name_at(size_t position) const {
    return std::string_view(text_).substr(names_[position].begin, names_[position].size);
  }
  Name keep(std::string_view name);
  void enter(uint32_t hash, size_t position);
  void grow();

  std::vector<Shared<VarDesc>> vars_;  // empty where one was removed
  // The names apart from the variables: a search that reads these only stays in the cache.
  std::vector<Name> names_;
  std::string text_;
  std::vector<Cell> cells_;  // none, or a power of two, at most half full
  Vocabulary vocabulary_;
  size_t count_ = 0;
  size_t filled_ = 0;  // cells that are not empty, those of removed variables included
};

}  // namespace fleet::fluid

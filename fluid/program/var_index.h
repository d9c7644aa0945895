// Variables by name, for many questions about a program that nobody changes meanwhile: faster than
// the blocks' own maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::fluid {

// The names of one block.
class NameTable {
 public:
  explicit NameTable(const Block& block);

  const VarDesc* find(std::string_view name) const;  // null when there is none

 private:
  // A place of the hash table, which is probed cell by cell: a name's hash, its position in vars_.
  struct Cell {
    uint32_t hash = 0;
    uint32_t position = kEmpty;
  };
  static constexpr uint32_t kEmpty = UINT32_MAX;

  std::vector<const VarDesc*> vars_;
  std::vector<Cell> cells_;  // a power of two, at most half full
};

class VarIndex {
 public:
  explicit VarIndex(const Program& program)
      : program_(program), own_(static_cast<size_t>(program.block_count())) {}

  // Here or in an enclosing block; null when there is none.
  const VarDesc* find(const Block& block, std::string_view name);

 private:
  const NameTable& own(int32_t index);

  const Program& program_;
  std::vector<std::optional<NameTable>> own_;
};

// Program::verify, and the index serves further questions.
Status verify(const Program& program, VarIndex& index);

}  // namespace fleet::fluid

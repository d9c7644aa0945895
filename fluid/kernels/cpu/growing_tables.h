// How kernels reach growing tables.
#pragma once

#include <string>
#include <string_view>

#include "fluid/kernels/kernel.h"
#include "fluid/tables/lookup/shared_table.h"

namespace fleet::fluid::cpu {

// A growing table among the inputs of an op.
struct TableInput {
  int position = -1;
  int64_t width = 0;  // as the program says
  std::string where;

  // Throws ProgramError when the variable holds no such table.
  tables::SharedTable& table(const KernelContext& context) const;
};

// Throws ProgramError unless the variable in the slot is declared as a growing table and, where it
// `has_value` here and not on servers only, has one.
TableInput table_input(const PrepareContext& context, std::string_view slot, bool has_value = true);

}  // namespace fleet::fluid::cpu

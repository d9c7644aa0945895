// What ops lookup_table, lookup_table_v2 and their gradients look up, on every device.
#pragma once

#include <string>

#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// A table and the ids that are looked up in it.
struct Lookup {
  int w = -1;  // positions
  int ids = -1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t count = 0;  // of ids
  int64_t padding = -1;
  std::string where;

  bool is_padding(int64_t id) const { return padding >= 0 && id == padding; }
  // Throws UsageError for an id that is no row of the table.
  void check(int64_t id) const {
    if (id < 0 || id >= height) refuse(id);
  }

 private:
  [[noreturn]] void refuse(int64_t id) const;
};

// Throws ProgramError that names the slot unless W is [height, width] and Ids are int64.
Lookup lookup_of(const PrepareContext& context, int64_t padding);
// The shape of Out; `last_is_one`: ids end in a dimension of 1, which Out has not.
Shape looked_up_shape(const PrepareContext& context, const Lookup& lookup, bool last_is_one);
// Throws ProgramError unless Out@GRAD has a row of the table's width for each id.
void require_row_gradients(const PrepareContext& context, const Lookup& lookup);

}  // namespace fleet::fluid

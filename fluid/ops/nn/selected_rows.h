// Selected rows: some rows of a table, a row possibly several times (fluid/core/value.h).
//
//   merge_selected_rows            X -> Out: every row once, ascending, its values summed
//   get_tensor_from_selected_rows  X -> Out: the values alone, dense
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

void add_selected_rows_ops(OpTable& table);

}  // namespace fleet::fluid

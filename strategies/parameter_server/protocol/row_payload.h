// The bytes of a sparse gradient on the wire (docs/wire_protocol.md): the numbers of the rows,
// strictly ascending, and then their values.
#pragma once

#include <span>

#include "base/buffer.h"
#include "fluid/core/value.h"

namespace fleet::strategies {

// `rows` are strictly ascending.
Buffer row_payload(const fluid::SelectedRows& rows);

// The rows [begin, end), counted from `begin`; in the order in which they occur.
fluid::SelectedRows rows_between(const fluid::SelectedRows& rows, int64_t begin, int64_t end);

// The rows' numbers among every stride-th row of their table, of which there are `height`.
fluid::SelectedRows rows_of_stride(const fluid::SelectedRows& rows, int64_t stride, int64_t height);

}  // namespace fleet::strategies

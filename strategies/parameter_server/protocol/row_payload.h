// Rows on the wire (docs/wire_protocol.md): a sparse gradient is the numbers of its rows, strictly
// ascending, and then their values; values are of their own type, or float32 ones of 16 bits each.
#pragma once

#include <span>

#include "base/buffer.h"
#include "fluid/core/value.h"

namespace fleet::strategies {

// `rows` are strictly ascending; `as` is a ParameterEntry's row_dtype().
Buffer row_payload(const fluid::SelectedRows& rows, fluid::DType as);

// Values as they travel: themselves where `as` is their type, else float32 ones rounded to it.
fluid::Tensor sent_values(const fluid::Tensor& values, fluid::DType as);
// `count` float32 values from 16-bit ones.
void values_of_sent(const std::byte* sent, fluid::DType as, size_t count, float* values);

// The rows [begin, end), counted from `begin`; in the order in which they occur.
fluid::SelectedRows rows_between(const fluid::SelectedRows& rows, int64_t begin, int64_t end);

// The rows' numbers among every stride-th row of their table, of which there are `height`.
fluid::SelectedRows rows_of_stride(const fluid::SelectedRows& rows, int64_t stride, int64_t height);

}  // namespace fleet::strategies

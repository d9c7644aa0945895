// Finding what is NaN or infinite.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fluid/core/tensor.h"

namespace fleet::fluid {

// The first element of a float32 or float64 tensor that is NaN or infinite; of other types, and of
// a tensor without memory, there is none.
std::optional<double> first_nonfinite(const Tensor& tensor);
// The same, looking at these rows only. In host memory.
std::optional<double> first_nonfinite(const Tensor& tensor, std::span<const int64_t> rows);

}  // namespace fleet::fluid

// Whether the numbers of a case make it differ, for rules whose two results may be equal.
#pragma once

#include <functional>
#include <string>

#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

// A tensor of the case's file, by its name there.
using Tensors = std::function<Tensor(const std::string& name)>;

// An id of padding_idx to which a gradient comes back.
bool looks_up_padding(const Json& json, const Tensors& tensors);
// A label of ignore_index to whose row a gradient comes back.
bool has_ignored_label(const Json& json, const Tensors& tensors);
// A path that ends before the longest.
bool has_short_path(const Json& json, const Tensors& tensors);
// A division that leaves a rest, of numbers of unlike signs.
bool divides_unlike_signs(const Json& json, const Tensors& tensors);
// Of optimizers: a gradient that is not 0.
bool has_gradient(const Json& json, const Tensors& tensors);
// Of optimizers: a parameter that is not 0 after one of the steps that the file has.
bool leaves_zero(const Json& json, const Tensors& tensors);
// A gradient that is not a number.
bool has_no_number(const Json& json, const Tensors& tensors);

// elu's gradient where e^x overflows: Paddle's is not a number in what its vector loop leaves
// over, and elsewhere `cotangent`, which is right. `got`, with each element that is not a number
// replaced where the file has the other.
Tensor either_overflow(const Tensor& got, const Tensor& expected, const Tensor& cotangent);

}  // namespace fleet::fluid::golden

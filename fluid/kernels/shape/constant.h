// What fill_constant and its kin check, on every device.
#pragma once

#include <string>
#include <type_traits>

#include "base/strings.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// The number to fill with: `text` where there is one, which holds more than a float does. Throws
// ProgramError for a text that is no number.
template <class T>
T constant_of(const PrepareContext& context, float value, const std::string& text) {
  if (text.empty()) return static_cast<T>(value);
  if (const auto whole = parse_int(text); whole && std::is_integral_v<T>) {
    return static_cast<T>(*whole);
  }
  const auto number = parse_double(text);
  context.require(number.has_value(), "Out", "str_value: a number", text);
  return static_cast<T>(*number);
}

// What fill_constant_batch_size_like fills: as many rows as Input has, or sequences.
struct BatchFill {
  Shape shape;
  DType dtype = DType::kFloat32;
  int rows = 0;  // the dimension of `shape` that is the batch
  bool sequences = false;
  int input = -1;
  int out = -1;

  // Output `out`, in the shape of this run.
  Tensor& output(const KernelContext& c) const;
};
// Throws ProgramError for an Input without the dimension.
BatchFill batch_fill_of(PrepareContext& context);

}  // namespace fleet::fluid

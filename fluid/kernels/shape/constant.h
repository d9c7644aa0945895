// The number that fill_constant and its kin fill with: `text` where there is one, which holds more
// than a float does.
#pragma once

#include <string>
#include <type_traits>

#include "base/strings.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Throws ProgramError for a text that is no number.
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

}  // namespace fleet::fluid

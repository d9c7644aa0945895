// Options of mixed precision as strategies show and compare them.
#pragma once

#include <optional>
#include <string>

#include "fluid/mixed_precision/options.h"

namespace fleet::strategies {

// "off", "bfloat16", "float16, scaled by 128", "float16, scaled by 32768 at first (…)"; behind it
// the lists, where they are not those of the library.
std::string amp_text(const std::optional<fluid::mixed_precision::Options>& options);

}  // namespace fleet::strategies

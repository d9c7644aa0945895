// JSON of files that may be hostile.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace fleet::fluid::io {

// Discarded when it is malformed, nested deeper than `max_depth`, or has a key twice. What nlohmann
// copies and writes by recursion is then safe to be copied and written.
nlohmann::json parse_strict_json(std::string_view text, int max_depth);

}  // namespace fleet::fluid::io

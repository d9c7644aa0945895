// What this library makes of a golden case with its own defaults, where Paddle's form is
// another: as text, of which a copy is kept for every case that a departure names.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fleet::golden {

// The programs of the first worker and of every server; of a case of kind "layers", the user's own.
// Of a worker's ops that the user's program has too only the types are listed, and what the op's
// attributes are by default is left out.
std::string describe_our_form(const nlohmann::json& golden);

}  // namespace fleet::golden

// What fleet-inspect found out, for people and for machines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/checkpoints.h"

namespace fleet::inspect {

struct TextStyle {
  bool colour = false;
};

// With control characters as \xNN: names and texts of files are shown so, lest they write to the
// terminal what they like.
std::string printable(std::string_view text);

std::string draw_text(const Listing& listing, const TextStyle& style = {});
std::string draw_text(const Checkpoint& checkpoint, const TextStyle& style = {});
std::string draw_text(const std::vector<Verified>& checkpoints, const TextStyle& style = {});
std::string draw_text(const Comparison& comparison, const TextStyle& style = {});

// One object each; numbers that are not finite are null.
std::string to_json(const Listing& listing);
std::string to_json(const Checkpoint& checkpoint);
std::string to_json(const std::vector<Verified>& checkpoints);
std::string to_json(const Comparison& comparison);

}  // namespace fleet::inspect

// How numbers and texts are shown to people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fleet {

// A number with that many digits after the point.
std::string fixed(double value, int digits);

// "512 B", "4.2 MB": decimal units, one digit after the point from kB on.
std::string bytes_text(double bytes);

// Columns as wide as their widest cell, the first aligned left, the others right; the first row is
// the heading.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

// The text as content or attribute of an XML or HTML element.
std::string escape_markup(std::string_view text);

}  // namespace fleet

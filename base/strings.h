// Small text helpers that the whole project shares.
#pragma once

#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fleet {

// The parts streamed one after the other: str_cat("rank ", 3) == "rank 3".
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out << separator;
    out << part;
    first = false;
  }
  return std::move(out).str();
}

// Pieces between separators; an empty text has no pieces, "a,,b" has three.
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

// The whole text as a number; nothing when it is anything else, or out of range.
std::optional<long long> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
// The spellings of a switch: 1, true, True, on; 0, false, False, off. Nothing for another text.
std::optional<bool> parse_flag(std::string_view text);
// Those spellings, as messages name them.
inline constexpr std::string_view kFlagSpellings = "1, 0, true, false, on or off";

// The candidate with the smallest edit distance, if it is near enough to be a likely slip.
std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates);

// "; did you mean 'x'?" or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

// Shortest text that reads back as the same value. A value that is exactly a 32-bit float is
// written as that float, so that 0.1f reads 0.1.
std::string shortest(double value);

}  // namespace fleet

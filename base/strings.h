// Small text helpers that the whole project shares.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace fleet {

namespace strings {

// Not inline: GCC 12 takes a text that is longer than std::string's own buffer for an overflow.
void append_text(std::string& out, std::string_view part);
void append_integer(std::string& out, long long value);
void append_integer(std::string& out, unsigned long long value);
void append_real(std::string& out, double value);

// What `stream << part` writes in a stream that nobody has changed; without the stream's locale and
// its many calls where the type is an ordinary one.
template <class Part>
void append(std::string& out, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    append_text(out, part);
  } else if constexpr (std::is_same_v<Part, char> || std::is_same_v<Part, signed char> ||
                       std::is_same_v<Part, unsigned char>) {
    out.push_back(static_cast<char>(part));
  } else if constexpr (std::is_same_v<Part, float> || std::is_same_v<Part, double>) {
    append_real(out, part);
  } else if constexpr (std::is_integral_v<Part> && std::is_signed_v<Part>) {
    append_integer(out, static_cast<long long>(part));
  } else if constexpr (std::is_integral_v<Part>) {
    append_integer(out, static_cast<unsigned long long>(part));
  } else {
    static_assert(!std::is_function_v<Part>, "std::hex and its like change nothing here");
    std::ostringstream stream;
    stream << part;
    out.append(std::move(stream).str());
  }
}

}  // namespace strings

// The parts one after the other, each as a stream writes it: str_cat("rank ", 3) == "rank 3". Reals
// have six digits; shortest() has all.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::string out;
  (strings::append(out, parts), ...);
  return out;
}

template <class Range>
std::string join(const Range& parts, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& part : parts) {
    if (!first) out.append(separator);
    strings::append(out, part);
    first = false;
  }
  return out;
}

// The sixteen hexadecimal digits of a number, small letters.
std::string hex_digits(uint64_t value);

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

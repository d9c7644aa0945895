#include "base/strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

namespace fleet {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

template <class T>
std::string shortest_chars(T value) {
  char text[64];
  const auto result = std::to_chars(text, text + sizeof text, value);
  return std::string(text, result.ptr);
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

namespace strings {
namespace {

template <class... Arguments>
void append_chars(std::string& out, Arguments... arguments) {
  char digits[40];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), arguments...).ptr;
  out.append(std::begin(digits), end);
}

}  // namespace

void append_text(std::string& out, std::string_view part) {
  out.append(part);
}
void append_integer(std::string& out, long long value) {
  append_chars(out, value);
}
void append_integer(std::string& out, unsigned long long value) {
  append_chars(out, value);
}
void append_real(std::string& out, double value) {
  append_chars(out, value, std::chars_format::general, 6);
}

}  // namespace strings

std::string hex_digits(uint64_t value) {
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  if (text.empty()) return pieces;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return pieces;
    begin = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::optional<long long> parse_int(std::string_view text) {
  return parse_whole<long long>(text);
}

std::optional<double> parse_double(std::string_view text) {
  return parse_whole<double>(text);
}

std::optional<bool> parse_flag(std::string_view text) {
  if (text == "1" || text == "true" || text == "True" || text == "on") return true;
  if (text == "0" || text == "false" || text == "False" || text == "off") return false;
  return std::nullopt;
}

std::optional<std::string> nearest_name(std::string_view name,
                                        std::span<const std::string> candidates) {
  const size_t limit = std::max<size_t>(2, name.size() / 3);
  size_t best = limit + 1;
  const std::string* found = nullptr;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      found = &candidate;
    }
  }
  if (found == nullptr) return std::nullopt;
  return *found;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto nearest = nearest_name(name, candidates);
  return nearest ? str_cat("; did you mean '", *nearest, "'?") : std::string();
}

std::string shortest(double value) {
  if (std::isfinite(value) && std::abs(value) <= std::numeric_limits<float>::max()) {
    const auto narrow = static_cast<float>(value);
    if (static_cast<double>(narrow) == value) return shortest_chars(narrow);
  }
  return shortest_chars(value);
}

}  // namespace fleet

#include "fluid/data/formats/parsers/number_text_impl.h"

namespace fleet::fluid::data::text {
namespace {

constexpr size_t kMaxDigits = 19;  // that surely fit into 64 bits
constexpr std::array<double, 20> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                            1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                            1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

// A decimal number of up to 19 digits, of which the value is at most 2^53: the quotient is rounded
// correctly to a double. Rounding that to a float is right, too, unless it lies in the middle
// between two floats, from which the number itself may differ a little.
bool parse_decimal(const char* p, size_t n, double& value) {
  uint64_t whole = 0;
  size_t decimals = 0;
  bool dot = false;
  if (n < 2 || n > kMaxDigits + 1) return false;
  for (size_t i = 0; i < n; ++i) {
    const auto digit = static_cast<unsigned char>(p[i] - '0');
    if (digit > 9) {
      if (dot || p[i] != '.') return false;
      dot = true;
      continue;
    }
    if (i >= kMaxDigits && !dot) return false;
    whole = whole * 10 + digit;
    decimals += dot;
  }
  if (whole > uint64_t{1} << 53) return false;
  value = static_cast<double>(whole) / kPowers[decimals];
  constexpr uint64_t kBelowFloat = (uint64_t{1} << 29) - 1;
  const uint64_t below = std::bit_cast<uint64_t>(value) & kBelowFloat;
  return below != uint64_t{1} << 28 &&
         (value == 0 || value >= static_cast<double>(std::numeric_limits<float>::min()));
}

bool parse_general(std::string_view text, float& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (at != end) return false;
  if (error == std::errc()) return true;
  // Out of range: too small, or too large.
  double wide = 0;
  const auto wide_error = std::from_chars(text.data(), end, wide).ec;
  const bool small = wide_error == std::errc() ? std::abs(wide) < 1
                                               : text.find("e-") != std::string_view::npos ||
                                                     text.find("E-") != std::string_view::npos;
  value = wide_error == std::errc() ? static_cast<float>(wide) : 0;
  return small;
}

}  // namespace

bool parse_long_digits(const char* p, size_t n, uint64_t& value) {
  const auto [at, error] = std::from_chars(p, p + n, value);
  return n > 0 && error == std::errc() && at == p + n;
}

bool parse_long_hex(const char* p, size_t n, uint64_t& value) {
  if (n == 0 || n > 16) return false;
  uint64_t low = 0;
  if (!parse_hex(p, n - 8, value) || !parse_hex(p + n - 8, 8, low)) return false;
  value = value << 32 | low;
  return true;
}

bool parse_any_float(const char* p, size_t n, float& value) {
  if (n > 0 && *p == '+') {
    ++p;
    --n;
    if (n > 0 && *p == '-') return false;
  }
  const bool negative = n > 1 && *p == '-';
  double wide = 0;
  if (parse_decimal(p + negative, n - negative, wide)) {
    value = static_cast<float>(negative ? -wide : wide);
    return true;
  }
  return n > 0 && parse_general({p, n}, value);
}

}  // namespace fleet::fluid::data::text

#include "base/process/random_hex.h"

#include <string_view>
#include <sys/random.h>

namespace fleet {

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  for (size_t filled = 0; filled < bytes;) {
    const ssize_t got = ::getrandom(raw.data() + filled, bytes - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string make_job_secret() {
  return random_hex(32);
}

}  // namespace fleet

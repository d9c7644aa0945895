#include "fluid/program/server_mode.h"

#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

// By the enum's value.
constexpr std::array<std::string_view, 5> kNames = {"sync", "async", "half_async", "geo", "easgd"};

}  // namespace

std::string_view to_string(ServerMode mode) {
  return kNames.at(static_cast<size_t>(mode));
}

ServerMode parse_server_mode(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<ServerMode>(i);
  }
  const std::vector<std::string_view> known(kNames.begin(), kNames.end());
  throw_error(ErrorCode::kUnknownName,
              {.what = "unknown mode of servers",
               .where = "DistributionInfo.server_mode",
               .expected = "one of '" + join(known, "', '") + "'",
               .got = "'" + std::string(text) + "'",
               .fix = "use one of those words, or a version of Fleet that knows this one"});
}

}  // namespace fleet::fluid

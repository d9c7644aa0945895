#include "fluid/program/op_role.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

constexpr std::array kRoles = {
    std::pair{OpRole::kForward, std::string_view("forward")},
    std::pair{OpRole::kBackward, std::string_view("backward")},
    std::pair{OpRole::kOptimize, std::string_view("optimize")},
    std::pair{OpRole::kRpc, std::string_view("rpc")},
    std::pair{OpRole::kDist, std::string_view("dist")},
    std::pair{OpRole::kLrSched, std::string_view("lrsched")},
    std::pair{OpRole::kLoss, std::string_view("loss")},
};

}  // namespace

std::string to_string(OpRole role) {
  std::vector<std::string_view> names;
  for (const auto& [flag, name] : kRoles) {
    if (has_role(role, flag)) names.push_back(name);
  }
  return join(names, "|");
}

OpRole parse_op_role(std::string_view text) {
  OpRole role = OpRole::kForward;
  for (const std::string& part : split(text, '|')) {
    bool found = false;
    for (const auto& [flag, name] : kRoles) {
      if (part != name) continue;
      role = role | flag;
      found = true;
    }
    if (!found) {
      throw_error(ErrorCode::kUnknownName,
                  {.what = "unknown op role",
                   .where = "role",
                   .expected = "forward, backward, optimize, rpc, dist, lrsched, loss, joined by |",
                   .got = std::string(text),
                   .fix = "use those names"});
    }
  }
  return role;
}

}  // namespace fleet::fluid

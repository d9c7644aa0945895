#include "fluid/program/var_desc.h"

#include <array>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

constexpr std::array<std::string_view, 6> kKinds = {
    "LOD_TENSOR", "SELECTED_ROWS", "LOD_TENSOR_ARRAY", "STEP_SCOPES", "RAW", "GROWING_TABLE"};

}  // namespace

std::string_view var_kind_name(VarKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

VarKind parse_var_kind(std::string_view name) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i] == name) return static_cast<VarKind>(i);
  }
  throw_error(ErrorCode::kUnknownName, {.what = "unknown kind of variable",
                                        .where = "kind",
                                        .expected = join(kKinds, ", "),
                                        .got = std::string(name),
                                        .fix = "use one of the names above"});
}

}  // namespace fleet::fluid

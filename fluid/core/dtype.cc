#include "fluid/core/dtype.h"

#include <array>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

struct Row {
  std::string_view name;
  size_t size;
};

constexpr std::array kRows = {
    Row{"bool", 1},  Row{"uint8", 1},   Row{"int8", 1},     Row{"int16", 2},   Row{"int32", 4},
    Row{"int64", 8}, Row{"float16", 2}, Row{"bfloat16", 2}, Row{"float32", 4}, Row{"float64", 8}};

}  // namespace

size_t dtype_size(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].size;
}

std::string_view dtype_name(DType dtype) {
  return kRows[static_cast<size_t>(dtype)].name;
}

DType parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  throw_error(ErrorCode::kUnknownName, {.what = "unknown element type" + did_you_mean(name, names),
                                        .where = "dtype",
                                        .expected = join(names, ", "),
                                        .got = std::string(name),
                                        .fix = "use one of the names above"});
}

}  // namespace fleet::fluid

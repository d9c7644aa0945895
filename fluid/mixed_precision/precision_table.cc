#include "fluid/mixed_precision/precision_table.h"

#include <array>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid::mixed_precision {
namespace {

constexpr std::array kHalf = {"conv2d", "matmul", "mul"};
constexpr std::array kOfInputs = {"elementwise_add",
                                  "elementwise_sub",
                                  "elementwise_mul",
                                  "elementwise_div",
                                  "elementwise_max",
                                  "elementwise_min",
                                  "elementwise_pow",
                                  "elementwise_mod",
                                  "elementwise_floordiv",
                                  "batch_norm",
                                  "tanh",
                                  "sigmoid",
                                  "lookup_table",
                                  "top_k",
                                  "pool2d",
                                  "pool3d",
                                  "dropout",
                                  "relu",
                                  "relu6",
                                  "leaky_relu",
                                  "soft_relu",
                                  "flatten2",
                                  "stack",
                                  "unstack",
                                  "uniform_random_batch_size_like",
                                  "gaussian_random",
                                  "gaussian_random_batch_size_like",
                                  "slice",
                                  "rank",
                                  "scale",
                                  "transpose2",
                                  "reshape2",
                                  "gather",
                                  "fill_constant",
                                  "get_tensor_from_selected_rows",
                                  "sign",
                                  "cast"};

[[noreturn]] void refuse(std::string what, const char* field, std::string expected,
                         const std::string& got, std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = str_cat("PrecisionLists::", field),
                                            .expected = std::move(expected),
                                            .got = "'" + got + "'",
                                            .fix = std::move(fix)});
}

void require_op(const std::string& type, const char* field, const Program& program) {
  const OpTable& table = op_table(program);
  if (table.find(type) != nullptr) return;
  std::vector<std::string> known;
  for (const auto& [name, schema] : table.all()) known.push_back(name);
  refuse("there is no such op" + did_you_mean(type, known), field, "types of ops", type,
         "correct the name, or leave it out");
}

void require_variable(const std::string& name, const Program& program) {
  const Block& block = program.global_block();
  if (block.has_var(name)) return;
  std::vector<std::string> known;
  for (const VarDesc* var : block.vars()) known.push_back(var->name);
  refuse("the program has no such variable" + did_you_mean(name, known), "custom_black_varnames",
         "names of variables of its main block", name, "correct the name, or leave it out");
}

}  // namespace

PrecisionTable::PrecisionTable(const PrecisionLists& lists, const Program& program)
    : black_variables_(lists.custom_black_varnames.begin(), lists.custom_black_varnames.end()) {
  for (const char* type : kHalf) types_[type] = Precision::kHalf;
  for (const char* type : kOfInputs) types_[type] = Precision::kOfInputs;
  for (const std::string& type : lists.custom_white_list) {
    require_op(type, "custom_white_list", program);
    if (lists.custom_black_list.contains(type)) {
      refuse("an op cannot be in both lists", "custom_white_list, custom_black_list",
             "each op type in one of them", type, "leave it out of one");
    }
    types_[type] = Precision::kHalf;
  }
  for (const std::string& type : lists.custom_black_list) {
    require_op(type, "custom_black_list", program);
    types_[type] = Precision::kFloat32;
  }
  for (const std::string& name : lists.custom_black_varnames) require_variable(name, program);
}

Precision PrecisionTable::of(std::string_view op_type) const {
  const auto found = types_.find(op_type);
  return found == types_.end() ? Precision::kFloat32 : found->second;
}

}  // namespace fleet::fluid::mixed_precision

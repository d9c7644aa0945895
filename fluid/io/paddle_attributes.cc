#include "fluid/io/paddle_attributes.h"

#include <algorithm>
#include <map>
#include <set>

namespace fleet::fluid::paddle {
namespace {

// Which library computes, with how much memory, and where an op was written.
const std::set<std::string, std::less<>>& without_effect() {
  static const std::set<std::string, std::less<>> names = {
      "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@",
      "exhaustive_search",
      "op_callstack",
      "op_device",
      "skip_eager_deletion_vars",
      "use_cudnn",
      "use_mkldnn",
      "use_ngraph",
      "workspace_size_MB"};
  return names;
}

// Of every op that both have, the attributes that only the release has, with their defaults by its
// op protos: an attribute has one default in all of its ops.
const AttributeMap& defaults() {
  static const AttributeMap values = {
      {"Scale_in", 1.0},
      {"Scale_in_eltwise", 1.0},
      {"Scale_out", 1.0},
      {"Scale_weights", std::vector<double>{1.0}},
      {"Scale_x", 1.0},
      {"Scale_y", 1.0},
      {"auto_grown_table", true},
      {"force_fp32_output", false},
      {"fuse_activation", std::string()},
      {"fuse_alpha", 0.0},
      {"fuse_beta", 0.0},
      {"fuse_brelu", false},
      {"fuse_brelu_threshold", 6.0},
      {"fuse_relu", false},
      {"fuse_relu_before_depthwise_conv", false},
      {"fuse_residual_connection", false},
      {"fuse_with_relu", false},
      {"fused_reshape_Out", std::vector<int64_t>()},
      {"fused_transpose_Out", std::vector<int64_t>()},
      {"is_test", false},
      {"overwrite", true},
      {"save_as_fp16", false},
      {"scale_out", 1.0},
      {"scale_x", 1.0},
      {"scale_y", std::vector<double>{1.0}},
      {"trainer_id", int64_t{0}},
      {"use_quantizer", false},
      {"x_data_format", std::string()},
      {"y_data_format", std::string()},
  };
  return values;
}

// Of attributes that the table lacks: nothing, off, or zero.
bool is_nothing(const Attribute& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* number = std::get_if<int64_t>(&value)) return *number == 0;
  if (const auto* number = std::get_if<double>(&value)) return *number == 0.0;
  if (const auto* text = std::get_if<std::string>(&value)) return text->empty();
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return list->empty();
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return list->empty();
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return list->empty();
  return false;
}

}  // namespace

bool is_neutral(const std::string& name, const Attribute& value) {
  if (without_effect().contains(name)) return true;
  const auto found = defaults().find(name);
  if (found == defaults().end()) return is_nothing(value);
  // An empty list has no element to tell its type by.
  return value == found->second || (is_nothing(value) && is_nothing(found->second));
}

}  // namespace fleet::fluid::paddle

#include "strategies/amp_text.h"

#include <set>
#include <vector>

#include "base/strings.h"

namespace fleet::strategies {
namespace {

std::string list_text(const char* name, const std::set<std::string>& names) {
  if (names.empty()) return {};
  return str_cat(", ", name, " ", join(std::vector<std::string>(names.begin(), names.end()), " "));
}

std::string scaling_text(const fluid::mixed_precision::LossScalingOptions& scaling) {
  std::string text = str_cat(", scaled by ", scaling.init_loss_scaling);
  if (!scaling.use_dynamic_loss_scaling) return text;
  return str_cat(text, " at first (times ", scaling.incr_ratio, " after ",
                 scaling.incr_every_n_steps, " steps, times ", scaling.decr_ratio, " after ",
                 scaling.decr_every_n_nan_or_inf, ")");
}

}  // namespace

std::string amp_text(const std::optional<fluid::mixed_precision::Options>& options) {
  if (!options) return "off";
  std::string text(fluid::dtype_name(options->dtype));
  if (options->dtype == fluid::DType::kFloat16) text += scaling_text(options->scaling);
  return str_cat(text, list_text("custom_white_list", options->lists.custom_white_list),
                 list_text("custom_black_list", options->lists.custom_black_list),
                 list_text("custom_black_varnames", options->lists.custom_black_varnames));
}

}  // namespace fleet::strategies

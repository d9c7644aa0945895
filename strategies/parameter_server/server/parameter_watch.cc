#include "strategies/parameter_server/server/parameter_watch.h"

#include <utility>

#include "fluid/core/nonfinite.h"

namespace fleet::strategies {

void ParameterWatch::on_nonfinite(const fluid::Nonfinite& found) {
  const std::lock_guard lock(mutex_);
  if (!found_) found_ = found;
  any_ = true;
}

void ParameterWatch::look_at(const std::string& name, const fluid::Tensor& slice,
                             const fluid::Value& gradient, uint64_t step) {
  const auto* rows = std::get_if<fluid::SelectedRows>(&gradient);
  const auto value =
      rows != nullptr ? fluid::first_nonfinite(slice, rows->rows) : fluid::first_nonfinite(slice);
  if (!value) return;
  on_nonfinite({.what = fluid::Nonfinite::What::kParameter,
                .variable = name,
                .value = *value,
                .step = step});
}

std::optional<fluid::Nonfinite> ParameterWatch::take() {
  if (!any_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  any_ = false;
  return std::exchange(found_, std::nullopt);
}

}  // namespace fleet::strategies

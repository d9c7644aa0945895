#include "fluid/kernels/optimize/dpsgd_noise.h"

#include "fluid/ops/optimize/optimize.h"

namespace fleet::fluid {

DpsgdNoise dpsgd_noise_of(const PrepareContext& context) {
  const auto attrs = context.attrs<DpsgdAttrs>();
  const VarDesc* var = context.output_var("ParamOut");
  const bool slice = var != nullptr && var->slice.has_value();
  const std::string origin = slice ? var->slice->origin : context.op().output("ParamOut").front();
  const uint64_t seed =
      attrs.seed != 0 ? static_cast<uint64_t>(attrs.seed) : context.block().program().random_seed();
  return {.key = RandomKey::of(seed, origin + "@DPSGD"),
          .first = slice ? static_cast<uint64_t>(var->slice->offset) : 0,
          .factor = static_cast<double>(attrs.sigma) / static_cast<double>(attrs.batch_size)};
}

}  // namespace fleet::fluid

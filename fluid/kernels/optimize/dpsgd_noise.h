// The noise of op dpsgd, on every device.
#pragma once

#include "base/philox.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Element i of the parameter gets factor times normal number first + i of the stream `word`.
struct DpsgdNoise {
  RandomKey key;
  uint64_t first = 0;
  double factor = 0;

  uint64_t word(const KernelContext& c) const {
    return (c.step() + 1) << 16 | static_cast<uint64_t>(c.shard() < 0 ? 0 : c.shard());
  }
};
DpsgdNoise dpsgd_noise_of(const PrepareContext& context);

}  // namespace fleet::fluid

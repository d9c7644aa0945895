#include "fluid/kernels/comm_runtime.h"

#include "base/error.h"

namespace fleet::fluid {

void CommRuntime::sum_shards(const CommCall& call, std::span<const double* const> /*parts*/,
                             double* /*out*/, size_t /*count*/) {
  throw_error(ErrorCode::kNotSupported,
              {.what = "the shards of a step do not meet in the middle of it in this job",
               .where = call.op.to_string(),
               .expected = "a collective job that adds up gradients every step",
               .got = "another kind of job",
               .fix = "leave sync_batch_norm off"});
}

}  // namespace fleet::fluid

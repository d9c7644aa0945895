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

void CommRuntime::enter_thread(uint32_t, Scope&, const Scope&) {
  throw_no_trainer_threads("another runtime");
}

void throw_no_trainer_threads(const char* got) {
  throw_error(ErrorCode::kPrecondition,
              {.what = "this program's runtime does not know trainer threads",
               .where = "run_trainer_threads",
               .expected = "a trainer program of AsyncStrategy, HalfAsyncStrategy, GeoStrategy or "
                           "EasgdStrategy",
               .got = got,
               .fix = "train with one thread, or with one of these strategies"});
}

}  // namespace fleet::fluid

#include "strategies/runtime/strategy_runtime.h"

#include "base/error.h"

namespace fleet::strategies {

void throw_no_trainer_threads(const char* got) {
  throw_error(ErrorCode::kPrecondition,
              {.what = "this program's runtime does not know trainer threads",
               .where = "run_trainer_threads",
               .expected = "a trainer program of AsyncStrategy, HalfAsyncStrategy, GeoStrategy or "
                           "EasgdStrategy",
               .got = got,
               .fix = "train with one thread, or with one of these strategies"});
}

void StrategyRuntime::enter_thread(uint32_t, fluid::Scope&, const fluid::Scope&) {
  throw_no_trainer_threads("another runtime");
}

}  // namespace fleet::strategies

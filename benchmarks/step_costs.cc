#include "benchmarks/step_costs.h"

#include "base/strings.h"
#include "benchmarks/handwritten/server_step.h"
#include "benchmarks/job.h"

namespace fleet::benchmarks {

void compare_steps(Row& row, int rows) {
  constexpr int kRounds = 3;
  JobShape alone = JobShape::alone(6000);
  alone.rows = rows;
  const Pairs pairs = Rounds().pairs(
      kRounds, [&] { return run_job(alone).worker_cpu_us; },
      [&] { return handwritten_step_us(rows); });
  row.note += str_cat(row.note.empty() ? "" : ", ", "a step alone: ours ",
                      tools::significant(pairs.our_median()), " us, the hand-written one ",
                      tools::significant(pairs.peer_median()), " us");
  require_fast_handwritten_step(row, pairs.peer_median(), pairs.our_median());
}

}  // namespace fleet::benchmarks

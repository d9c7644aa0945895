#include "benchmarks/handwritten/mpi_job.h"

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/process.h"

namespace fleet::benchmarks {

double handwritten_ranks_steps_per_s(const HandwrittenRanks& job) {
  std::vector<std::string> environment = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                          "OMPI_MCA_btl_vader_eager_limit=262144"};
  environment.insert(environment.end(), job.environment.begin(), job.environment.end());
  const auto result = run_to_success(
      {"mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", program_folder() + "/mpi_step",
       job.sum, std::to_string(job.steps), std::to_string(job.rows)},
      environment);
  const auto rate = parse_double(trim(result.output));
  if (rate) return *rate;
  throw_error(ErrorCode::kInternal, {.what = "mpi_step printed no rate", .got = result.output});
}

}  // namespace fleet::benchmarks

#include "benchmarks/collectives/mpi_rounds.h"

#include "base/strings.h"
#include "benchmarks/harness/process.h"

namespace fleet::benchmarks {

void take_mpi_rounds(Row& row, int ranks, const std::string& program,
                     const std::vector<std::string>& arguments, int rounds) {
  std::vector<std::string> argv = {
      "mpirun",    "-np",  std::to_string(ranks),           "--oversubscribe",
      "--bind-to", "none", program_folder() + "/" + program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const auto result =
      run_to_success(argv, {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  Pairs pairs;
  for (const std::string& line : split(trim(result.output), '\n')) {
    const auto fields = split(line, ' ');
    const auto ours = parse_double(fields.front());
    const auto peer = parse_double(fields.back());
    if (fields.size() != 2 || !ours || !peer) continue;
    pairs.ours.push_back(*ours);
    pairs.peer.push_back(*peer);
  }
  if (pairs.ours.size() != static_cast<size_t>(rounds)) {
    row.invalid.push_back(str_cat("not all rounds: ", result.output));
  }
  row.take(pairs);
}

}  // namespace fleet::benchmarks

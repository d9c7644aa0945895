// Rounds of ours and of a peer that lie side by side in one job under mpirun, since neither may
// start ranks anew in each.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/harness/row.h"

namespace fleet::benchmarks {

// Runs a program of the build as so many ranks on this machine. Rank 0 prints a line with both
// values for each round, which the row takes; it is invalid when rounds are missing. Throws when
// the program fails.
void take_mpi_rounds(Row& row, int ranks, const std::string& program,
                     const std::vector<std::string>& arguments, int rounds);

}  // namespace fleet::benchmarks

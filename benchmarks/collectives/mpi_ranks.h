// Ranks that mpirun started, on one machine.
#pragma once

#include <memory>

#include "transport/collective/point_to_point.h"

namespace fleet::benchmarks {

// Their messages and memory of our own, through arenas of a GiB each; no operation of MPI has part
// in them. All ranks call it, behind MPI_Init. Throws when they do not meet.
std::unique_ptr<transport::PointToPoint> connect_mpi_ranks();

}  // namespace fleet::benchmarks

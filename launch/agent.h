// The small process between mpirun and one rank, and the guard of a job.
#pragma once

#include <string>

namespace fleet::launch {

// Asks launch what to run (FLEET_AGENT_SOCKET, FLEET_AGENT_TOKEN, OMPI_COMM_WORLD_RANK), runs it,
// reports how it ends, and ends it with everything that it started when mpirun or launch ends,
// however they end. Returns the process's exit code.
int run_agent();

// Waits until descriptor kPassedFd is closed at its other end, which is when the launcher has
// ended without taking leave; then kills every process that carries `mark` ("NAME=value") in its
// environment, with its descendants, and removes the folder.
int run_guard(const std::string& mark, const std::string& run_folder);

}  // namespace fleet::launch

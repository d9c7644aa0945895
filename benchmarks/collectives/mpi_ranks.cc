#include "benchmarks/collectives/mpi_ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mpi.h>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/shared_collective/arena_exchange.h"
#include "transport/shared_collective/shared_peers.h"

namespace fleet::benchmarks {

std::unique_ptr<transport::PointToPoint> connect_mpi_ranks() {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  auto own = transport::Arena::make({ranks, uint64_t{1} << 30}).value();
  transport::ArenaExchange exchange;
  exchange.listen(ranks).throw_if_error();
  std::array<char, 256> mine{};
  const std::string said = exchange.invitation();
  std::memcpy(mine.data(), said.data(), std::min(said.size(), mine.size() - 1));
  std::vector<std::array<char, 256>> all(static_cast<size_t>(ranks));
  MPI_Allgather(mine.data(), 256, MPI_CHAR, all.data(), 256, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> invitations;
  invitations.reserve(all.size());
  for (const auto& text : all) invitations.emplace_back(text.data());
  const TimePoint soon = steady_clock().now() + std::chrono::seconds(60);
  auto arenas = exchange.join(rank, own, invitations, soon).value();
  return std::make_unique<transport::SharedPeers>(rank, own, std::move(arenas));
}

}  // namespace fleet::benchmarks

// All-reduces of ranks that share memory, and those of MPI, in turns. Run under mpirun with the
// bytes of the array, the rounds, and the calls of each; rank 0 prints a line for each round:
// microseconds of ours, and of MPI_Allreduce, the faster of in place and not. With a last argument
// "mpi" only the latter.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mpi.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/collectives/mpi_ranks.h"
#include "transport/collective/communicator.h"

namespace fleet::benchmarks {
namespace {

TimePoint soon() {
  return steady_clock().now() + std::chrono::seconds(60);
}

// Microseconds of a call, over all ranks' calls.
template <class Call>
double time_of(int calls, const Call& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return took.count() / calls;
}

// The faster of in place and not.
double mpi_us(int calls, std::vector<float>& in, std::vector<float>& out) {
  const auto count = static_cast<int>(in.size());
  std::fill(out.begin(), out.end(), 0.0F);
  const double apart = time_of(calls, [&] {
    MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  std::fill(out.begin(), out.end(), 0.0F);
  const double in_place = time_of(calls, [&] {
    MPI_Allreduce(MPI_IN_PLACE, out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  return std::min(apart, in_place);
}

void measure_mpi(int rank, size_t bytes, int rounds, int calls) {
  std::vector<float> in(bytes / sizeof(float), 1.0F);
  std::vector<float> out(in.size());
  mpi_us(1, in, out);
  for (int round = 0; round < rounds; ++round) {
    const double us = mpi_us(calls, in, out);
    if (rank == 0) std::printf("%.3f\n", us);
  }
}

void measure(int rank, int ranks, size_t bytes, int rounds, int calls) {
  const auto comm = transport::make_communicator(connect_mpi_ranks());
  const transport::ShardLayout layout(ranks, ranks);
  const size_t count = bytes / sizeof(float);
  const Buffer shared = comm->allocate(bytes);
  const void* part = shared.data();
  std::vector<float> in(count, 1.0F);
  std::vector<float> out(count);
  std::memset(shared.data(), 0, bytes);
  const auto ours = [&] {
    comm->all_reduce(layout, transport::ElementType::kFloat32, {&part, 1}, shared.data(), count, {})
        .wait(soon())
        .throw_if_error();
  };
  for (int round = -1; round < rounds; ++round) {
    const double our_us = time_of(calls, ours);
    const double their_us = mpi_us(calls, in, out);
    if (rank == 0 && round >= 0) std::printf("%.3f %.3f\n", our_us, their_us);
  }
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "shared_all_reduce: expected BYTES ROUNDS CALLS [mpi]\n");
    return 2;
  }
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto number = [&](int i) { return fleet::parse_int(argv[i]).value_or(1); };
  const auto bytes = static_cast<size_t>(number(1));
  const auto rounds = static_cast<int>(number(2));
  const auto calls = static_cast<int>(number(3));
  try {
    if (argc == 5) {
      fleet::benchmarks::measure_mpi(rank, bytes, rounds, calls);
    } else {
      fleet::benchmarks::measure(rank, ranks, bytes, rounds, calls);
    }
  } catch (const fleet::Error& error) {
    std::fprintf(stderr, "shared_all_reduce: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

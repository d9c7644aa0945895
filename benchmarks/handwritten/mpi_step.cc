// The peer of the collective rows: the quick start's net with one MPI_Allreduce in each step,
// written by hand. Run under mpirun; rank 0 prints steps per second.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mpi.h>
#include <vector>

#include "benchmarks/handwritten/mlp.h"

int main(int argc, char** argv) {
  using fleet::benchmarks::HandwrittenMlp;
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmup = 20;
  if (argc != 3) {
    std::fprintf(stderr, "usage: mpi_step STEPS ROWS\n");
    return 2;
  }
  const int steps = std::atoi(argv[1]);
  const int rows = std::atoi(argv[2]);
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  HandwrittenMlp net(rows);
  const std::vector<float> x(static_cast<size_t>(rows * HandwrittenMlp::kInputs), 0.5f);
  const std::vector<int64_t> y(static_cast<size_t>(rows), 1);
  std::vector<float> sum(net.gradients().size());
  Clock::time_point start;
  for (int step = 0; step < steps; ++step) {
    if (step == kWarmup) start = Clock::now();
    net.forward_backward(x.data(), y.data());
    MPI_Allreduce(net.gradients().data(), sum.data(), static_cast<int>(sum.size()), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
    fleet::benchmarks::sgd_step(net.parameters().data(), sum.data(),
                                0.01f / static_cast<float>(ranks), HandwrittenMlp::kParameters);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (rank == 0) std::printf("%.3f\n", (steps - kWarmup) / seconds);
  MPI_Finalize();
  return 0;
}

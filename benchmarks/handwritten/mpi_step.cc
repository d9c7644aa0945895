// The peer of the collective rows: the quick start's net, written by hand, whose ranks sum their
// gradients in each step. Run under mpirun; rank 0 prints steps per second. The sum is one
// MPI_Allreduce, or a walk of every rank over memory that all of them share.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <sched.h>
#include <vector>

#include "benchmarks/handwritten/mlp.h"

namespace {

using fleet::benchmarks::HandwrittenMlp;
using Clock = std::chrono::steady_clock;

constexpr int kParameters = HandwrittenMlp::kParameters;
constexpr float kRate = 0.01f;

// Adds up the gradients of two ranks in memory that both see. Two sets of buffers take turns: a
// rank that is a step ahead writes where the other one does not read.
class SharedSum {
 public:
  SharedSum(int rank, int ranks) : rank_(rank), ranks_(ranks) {
    MPI_Aint bytes = rank == 0 ? static_cast<MPI_Aint>(sizeof(Layout)) : 0;
    void* memory = nullptr;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window_);
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &bytes, &unit, &memory);
    layout_ = static_cast<Layout*>(memory);
    if (rank == 0) layout_->arrived.store(0);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~SharedSum() { MPI_Win_free(&window_); }
  SharedSum(const SharedSum&) = delete;
  SharedSum& operator=(const SharedSum&) = delete;

  // parameters -= rate * the mean of both ranks' gradients.
  void update(float* parameters, const float* gradients) {
    float* mine = layout_->gradients[turn_][rank_];
    std::memcpy(mine, gradients, sizeof(float) * kParameters);
    meet();
    const float* first = layout_->gradients[turn_][0];
    const float* second = layout_->gradients[turn_][1];
    const float rate = kRate / static_cast<float>(ranks_);
    for (int i = 0; i < kParameters; ++i) parameters[i] -= rate * (first[i] + second[i]);
    turn_ = 1 - turn_;
  }

 private:
  struct Layout {
    alignas(64) std::atomic<int64_t> arrived;
    alignas(64) float gradients[2][2][kParameters];
  };

  void meet() {
    constexpr int kSpins = 2000;
    met_ += ranks_;
    layout_->arrived.fetch_add(1, std::memory_order_acq_rel);
    for (int i = 0; layout_->arrived.load(std::memory_order_acquire) < met_; ++i) {
      if (i < kSpins) {
        __builtin_ia32_pause();
      } else {
        sched_yield();
      }
    }
  }

  int rank_;
  int ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  Layout* layout_ = nullptr;
  int turn_ = 0;
  int64_t met_ = 0;
};

template <class Update>
double steps_per_s(int steps, int rows, const Update& update) {
  constexpr int kWarmup = 20;
  HandwrittenMlp net(rows);
  std::vector<float> parameters = HandwrittenMlp::initial_parameters();
  const std::vector<float> x(static_cast<size_t>(rows * HandwrittenMlp::kInputs), 0.5f);
  const std::vector<int64_t> y(static_cast<size_t>(rows), 1);
  Clock::time_point start;
  for (int step = 0; step < steps; ++step) {
    if (step == kWarmup) start = Clock::now();
    net.forward_backward(parameters.data(), x.data(), y.data());
    update(parameters.data(), net.gradients().data());
  }
  return (steps - kWarmup) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: mpi_step allreduce|shared STEPS ROWS\n");
    return 2;
  }
  const bool shared = std::strcmp(argv[1], "shared") == 0;
  const int steps = std::atoi(argv[2]);
  const int rows = std::atoi(argv[3]);
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  double rate = 0;
  if (shared && ranks == 2) {
    SharedSum sum(rank, ranks);
    rate = steps_per_s(steps, rows, [&](float* parameters, const float* gradients) {
      sum.update(parameters, gradients);
    });
  } else if (!shared) {
    std::vector<float> sum(kParameters);
    rate = steps_per_s(steps, rows, [&](float* parameters, const float* gradients) {
      MPI_Allreduce(gradients, sum.data(), kParameters, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      fleet::benchmarks::sgd_step(parameters, sum.data(), kRate / static_cast<float>(ranks),
                                  kParameters);
    });
  }
  if (rank == 0 && rate > 0) std::printf("%.3f\n", rate);
  MPI_Finalize();
  return rate > 0 ? 0 : 2;
}

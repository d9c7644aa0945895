// The peer of the collective rows: the quick start's net, written by hand, whose ranks sum their
// gradients in each step. Run under mpirun; rank 0 prints steps per second. The sum is one
// MPI_Allreduce, or a walk of every rank over memory that all of them share.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <sched.h>
#include <vector>

#include "benchmarks/handwritten/arithmetic.h"
#include "benchmarks/handwritten/mlp.h"

namespace {

using fleet::benchmarks::HandwrittenMlp;
using fleet::benchmarks::sgd_step;
using fleet::benchmarks::sgd_step_of_two;
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

  // Where this rank's gradients of the next step go.
  float* gradients() { return layout_->gradients[turn_][rank_]; }

  // parameters -= rate * the mean of both ranks' gradients.
  void update(float* parameters) {
    meet();
    sgd_step_of_two(parameters, layout_->gradients[turn_][0], layout_->gradients[turn_][1],
                    kRate / static_cast<float>(ranks_), kParameters);
    turn_ = 1 - turn_;
  }

 private:
  static constexpr int kPadded = (kParameters + 15) / 16 * 16;
  struct Layout {
    alignas(64) std::atomic<int64_t> arrived;
    alignas(64) float gradients[2][2][kPadded];
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

// One MPI_Allreduce a step.
class AllReduce {
 public:
  explicit AllReduce(int ranks) : ranks_(ranks), gradients_(kParameters), sum_(kParameters) {}

  float* gradients() { return gradients_.data(); }

  void update(float* parameters) {
    MPI_Allreduce(gradients_.data(), sum_.data(), kParameters, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    sgd_step(parameters, sum_.data(), kRate / static_cast<float>(ranks_), kParameters);
  }

 private:
  int ranks_;
  std::vector<float> gradients_;
  std::vector<float> sum_;
};

template <class Sum>
double steps_per_s(int steps, int rows, Sum& sum) {
  const int warmup = std::min(20, steps / 2);
  HandwrittenMlp net(rows);
  std::vector<float> parameters = HandwrittenMlp::initial_parameters();
  const std::vector<float> x(static_cast<size_t>(rows * HandwrittenMlp::kInputs), 0.5f);
  const std::vector<int64_t> y(static_cast<size_t>(rows), 1);
  Clock::time_point start;
  for (int step = 0; step < steps; ++step) {
    if (step == warmup) start = Clock::now();
    net.write_gradients_to(sum.gradients());
    net.forward_backward(parameters.data(), x.data(), y.data());
    sum.update(parameters.data());
  }
  return (steps - warmup) / std::chrono::duration<double>(Clock::now() - start).count();
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
    rate = steps_per_s(steps, rows, sum);
  } else if (!shared) {
    AllReduce sum(ranks);
    rate = steps_per_s(steps, rows, sum);
  }
  if (rank == 0 && rate > 0) std::printf("%.3f\n", rate);
  MPI_Finalize();
  return rate > 0 ? 0 : 2;
}

// Steps of a collective job with the ordered all-reduce of the library, and with one in order of
// arrival, in turns. Run under mpirun with the rounds and the steps of each; rank 0 prints a line
// for each round: microseconds of a step with the one, and with the other.

#include <chrono>
#include <cstdio>
#include <mpi.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/collectives/mpi_ranks.h"
#include "benchmarks/handwritten/all_reduce_by_arrival.h"
#include "benchmarks/handwritten/arithmetic.h"
#include "benchmarks/handwritten/mlp.h"
#include "transport/collective/communicator.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRows = 32;
constexpr int kParameters = HandwrittenMlp::kParameters;
constexpr float kRate = 0.01F;

// The quick start's net, of which all but the sum is the same on both sides.
class Training {
 public:
  // `sum()` makes the sum of all ranks of what is in `gradients`.
  template <class Sum>
  double us_per_step(int steps, float* gradients, const Sum& sum) {
    net_.write_gradients_to(gradients);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
      net_.forward_backward(parameters_.data(), x_.data(), y_.data());
      sum();
      sgd_step(parameters_.data(), gradients, kRate, kParameters);
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / steps;
  }

 private:
  HandwrittenMlp net_{kRows};
  std::vector<float> parameters_ = HandwrittenMlp::initial_parameters();
  std::vector<float> x_ = std::vector<float>(size_t{kRows} * HandwrittenMlp::kInputs, 0.5F);
  std::vector<int64_t> y_ = std::vector<int64_t>(kRows, 1);
};

void measure(int rounds, int steps) {
  const auto comm = transport::make_communicator(connect_mpi_ranks());
  const auto peers = connect_mpi_ranks();
  AllReduceByArrival by_arrival(*peers, kParameters);
  const transport::ShardLayout layout(comm->size(), comm->size());
  const Buffer shared = comm->allocate(kParameters * sizeof(float));
  const void* part = shared.data();
  const auto ordered = [&] {
    comm->all_reduce(layout, transport::ElementType::kFloat32, {&part, 1}, shared.data(),
                     kParameters, {})
        .wait(steady_clock().now() + std::chrono::seconds(60))
        .throw_if_error();
  };
  Training training;
  for (int round = -1; round < rounds; ++round) {
    const auto ours = [&] {
      return training.us_per_step(steps, reinterpret_cast<float*>(shared.data()), ordered);
    };
    const auto theirs = [&] {
      return training.us_per_step(steps, by_arrival.values(), [&] { by_arrival.run(); });
    };
    const bool ours_first = round % 2 == 0;
    const double first = ours_first ? ours() : theirs();
    const double second = ours_first ? theirs() : ours();
    if (comm->rank() != 0 || round < 0) continue;
    std::printf("%.3f %.3f\n", ours_first ? first : second, ours_first ? second : first);
  }
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto rounds = argc == 3 ? fleet::parse_int(argv[1]) : std::nullopt;
  const auto steps = argc == 3 ? fleet::parse_int(argv[2]) : std::nullopt;
  if (!rounds || !steps) {
    std::fprintf(stderr, "ordered_step: expected ROUNDS STEPS\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
    return 2;
  }
  try {
    fleet::benchmarks::measure(static_cast<int>(*rounds), static_cast<int>(*steps));
  } catch (const fleet::Error& error) {
    std::fprintf(stderr, "ordered_step: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

// All-reduces of float32 on GPUs, in the forms of make_nccl_communicator and by a bare
// ncclAllReduce, one after the other in the same processes:
//
//     bench_nccl --ranks 2 --rank R --id FILE [--mib 64] [--rounds 20]
//
// Start one process for each rank; FILE does not exist before, and rank 0 writes NCCL's id there.
// Rank 0 prints a line of JSON for each form. Several ranks of one GPU: docs/gpu.md.
#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <cuda_runtime_api.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/nccl/cuda_queue.h"
#include "transport/nccl/nccl_communicator.h"

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLongest = std::chrono::seconds(60);

struct Options {
  int rank = 0;
  int ranks = 2;
  int device = 0;
  std::string id;
  size_t mib = 64;
  int rounds = 20;
};

// Each use needs an id of its own.
transport::NcclId shared_id(transport::Nccl& nccl, const Options& options, int use) {
  const std::string path = options.id + "." + std::to_string(use);
  transport::NcclId id{};
  if (options.rank == 0) {
    if (nccl.unique_id(id) != transport::NcclResult::kSuccess) throw std::runtime_error("no id");
    std::ofstream(path + ".new", std::ios::binary).write(id.data(), id.size());
    std::filesystem::rename(path + ".new", path);
    return id;
  }
  const auto end = Clock::now() + kLongest;
  while (!std::filesystem::exists(path)) {
    if (Clock::now() > end) throw std::runtime_error("rank 0 wrote no id to " + path);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream(path, std::ios::binary).read(id.data(), id.size());
  return id;
}

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

// Medians are of rounds, in milliseconds.
double median_of(int rounds, const std::function<void()>& once) {
  std::vector<double> times;
  for (int i = 0; i < rounds + 3; ++i) {
    const auto begin = Clock::now();
    once();
    const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
    if (i >= 3) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

void print(const Options& options, const char* form, double milliseconds) {
  if (options.rank != 0) return;
  const double bytes = static_cast<double>(options.mib << 20);
  const double bus = 2.0 * (options.ranks - 1) / options.ranks * bytes / (milliseconds * 1e6);
  std::printf("{\"row\": \"nccl_%s_%zum\", \"ranks\": %d, \"ms\": %.3f, \"bus_gb_per_s\": %.2f}\n",
              form, options.mib, options.ranks, milliseconds, bus);
  std::fflush(stdout);
}

double measure_form(const std::shared_ptr<transport::Nccl>& nccl, const Options& options, int use,
                    bool ordered, void* array, size_t count) {
  std::vector<transport::NcclRing> rings;
  rings.push_back(
      {.queue = transport::make_cuda_queue(options.device), .id = shared_id(*nccl, options, use)});
  auto communicator = transport::make_nccl_communicator(
                          nccl, transport::make_cuda_queue(options.device), std::move(rings),
                          {.rank = options.rank, .size = options.ranks},
                          steady_clock().now() + kLongest, {.ordered = ordered})
                          .value();
  const transport::ShardLayout layout(options.ranks, options.ranks);
  const std::vector<const void*> parts = {array};
  return median_of(options.rounds, [&] {
    auto token = communicator->all_reduce(layout, transport::ElementType::kFloat32, parts, array,
                                          count, {.phase = "bench"});
    const Status status = token.wait(steady_clock().now() + kLongest);
    if (!status.ok()) throw std::runtime_error(status.to_string());
  });
}

double measure_bare(transport::Nccl& nccl, const Options& options, int use, void* array,
                    size_t count) {
  const auto id = shared_id(nccl, options, use);
  ncclComm* comm = nullptr;
  auto state = nccl.init(comm, options.ranks, id, options.rank);
  const auto settle = [&] {
    while (state == transport::NcclResult::kInProgress) {
      if (nccl.async_error(comm, state) != transport::NcclResult::kSuccess) break;
    }
    if (state != transport::NcclResult::kSuccess)
      throw std::runtime_error(nccl.explain(state, comm));
  };
  settle();
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const double milliseconds = median_of(options.rounds, [&] {
    state = nccl.all_reduce(array, array, count, transport::ElementType::kFloat32, comm, stream);
    settle();
    check(cudaStreamSynchronize(stream));
  });
  nccl.destroy(comm);
  cudaStreamDestroy(stream);
  return milliseconds;
}

void run(const Options& options) {
  check(cudaSetDevice(options.device));
  const auto nccl = transport::load_nccl().value();
  const size_t bytes = options.mib << 20;
  void* array = nullptr;
  check(cudaMalloc(&array, bytes));
  check(cudaMemset(array, 0, bytes));
  const size_t count = bytes / sizeof(float);
  for (int turn = 0; turn < 2; ++turn) {
    print(options, "bare", measure_bare(*nccl, options, 3 * turn, array, count));
    print(options, "fast", measure_form(nccl, options, 3 * turn + 1, false, array, count));
    print(options, "ordered", measure_form(nccl, options, 3 * turn + 2, true, array, count));
  }
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  fleet::benchmarks::Options options;
  po::options_description flags("All-reduces of float32 on GPUs");
  auto add = flags.add_options();
  add("help", "print this text");
  add("rank", po::value(&options.rank)->required(), "of this process");
  add("ranks", po::value(&options.ranks)->default_value(2), "processes");
  add("device", po::value(&options.device)->default_value(0), "the GPU of this process");
  add("id", po::value(&options.id)->required(), "file in which ranks share NCCL's ids");
  add("mib", po::value(&options.mib)->default_value(64), "MiB of an array");
  add("rounds", po::value(&options.rounds)->default_value(20), "all-reduces of a median");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    if (given.contains("help")) {
      std::cout << flags << '\n';
      return 0;
    }
    po::notify(given);
    fleet::benchmarks::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_nccl: %s\n", error.what());
    return 1;
  }
  return 0;
}

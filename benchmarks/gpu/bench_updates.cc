// Updates a second of many parameters on a GPU, by one optimizer, and what of the bandwidth of a
// copy they reach in the same run. Prints a line of JSON.
#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "fluid/core/device_memory.h"
#include "fluid/executor/executor.h"
#include "fluid/executor/places.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

namespace layers = fluid::layers;
using Clock = std::chrono::steady_clock;

constexpr int kRuns = 50;  // of each side, one after the other
constexpr int kRounds = 7;

// Weights of the convolutions and norms of a ResNet-50, and of its last layer: 25.5 million.
std::vector<fluid::Shape> shapes() {
  std::vector<fluid::Shape> found = {{64, 3, 7, 7}, {64}, {64}, {1000, 2048}, {1000}};
  int64_t inputs = 64;
  for (const auto& [filters, blocks] :
       std::vector<std::pair<int64_t, int>>{{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    for (int i = 0; i < blocks; ++i) {
      const auto conv = [&found](int64_t out, int64_t in, int64_t size) {
        found.insert(found.end(), {{out, in, size, size}, {out}, {out}});
      };
      conv(filters, inputs, 1);
      conv(filters, filters, 3);
      conv(4 * filters, filters, 1);
      if (i == 0) conv(4 * filters, inputs, 1);
      inputs = 4 * filters;
    }
  }
  return found;
}

// Programs that set parameters and gradients, and that update the parameters.
struct Net {
  fluid::Program startup;
  fluid::Program updates;
  int64_t elements = 0;

  explicit Net(const std::string& optimizer) {
    const fluid::ProgramGuard programs(updates, startup);
    std::vector<fluid::ParamGrad> pairs;
    for (const fluid::Shape& shape : shapes()) {
      const auto parameter = layers::create_parameter(shape);
      const auto gradient =
          layers::create_global_var(shape, 1e-4, fluid::DType::kFloat32, {.persistable = true});
      pairs.push_back({parameter, gradient});
      elements += shape.numel();
    }
    if (optimizer == "adam") {
      fluid::optimizer::Adam({.learning_rate = 0.0001F}).apply_gradients(pairs);
    } else {
      fluid::optimizer::Momentum({.learning_rate = 0.001F, .momentum = 0.9F})
          .apply_gradients(pairs);
    }
  }
};

void run(const std::string& optimizer, const std::string& place_name) {
  const fluid::Place place = fluid::place_named(place_name);
  const Net net(optimizer);
  // Reads and writes of an element: its parameter, gradient and states.
  const int64_t bytes = net.elements * 4 * (optimizer == "adam" ? 7 : 5);
  fluid::Executor executor(place, {.cuda_graph = true});
  executor.run(net.startup);
  const fluid::Tensor from(fluid::DType::kUInt8, {bytes / 2}, place);
  fluid::Tensor to(fluid::DType::kUInt8, {bytes / 2}, place);
  const auto seconds_of = [&place](const auto& work) {
    fluid::mark_device(place)->wait();
    const auto begin = Clock::now();
    for (int i = 0; i < kRuns; ++i) work();
    fluid::mark_device(place)->wait();
    return std::chrono::duration<double>(Clock::now() - begin).count() / kRuns;
  };
  double update = 1e9;
  double copy = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    update = std::min(update, seconds_of([&] { executor.run(net.updates); }));
    copy = std::min(copy, seconds_of([&] { to.copy_from(from); }));
  }
  std::printf(
      "{\"optimizer\": \"%s\", \"tensors\": %zu, \"elements\": %lld, \"update_us\": %.1f, "
      "\"copy_us\": %.1f, \"update_gb_s\": %.0f, \"copy_gb_s\": %.0f, \"of_copy\": %.3f}\n",
      optimizer.c_str(), shapes().size(), static_cast<long long>(net.elements), update * 1e6,
      copy * 1e6, static_cast<double>(bytes) / update * 1e-9,
      static_cast<double>(bytes) / copy * 1e-9, copy / update);
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  std::string optimizer;
  std::string place;
  po::options_description flags("Updates of the parameters of a net, as a line of JSON");
  auto add = flags.add_options();
  add("help", "print this text");
  add("optimizer", po::value(&optimizer)->default_value("momentum"), "momentum or adam");
  add("place", po::value(&place)->default_value("gpu:0"), "gpu or gpu:N");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, flags), given);
    if (given.contains("help")) {
      std::cout << flags << '\n';
      return 0;
    }
    po::notify(given);
    fleet::benchmarks::run(optimizer, place);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_updates: %s\n", error.what());
    return 1;
  }
  return 0;
}

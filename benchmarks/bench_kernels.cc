// Kernels against what the machine can do: updates of parameters against a loop over the same
// memory, and every kernel of a net's step against its own roofline.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "benchmarks/handwritten/arithmetic.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"
#include "benchmarks/nets.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 7;
constexpr double kSeconds = 0.3;
constexpr int64_t kSmall = int64_t{1} << 20;  // elements
constexpr int64_t kLarge = int64_t{1} << 26;

// One update after the other of a parameter; its gradient stays.
struct Update {
  fluid::Program main;
  fluid::Program startup;
  fluid::Feed feed;

  Update(fluid::optimizer::Optimizer& optimizer, int64_t elements) {
    const fluid::Shape shape = {elements / 1024, 1024};
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto parameter = fluid::layers::create_parameter(shape);
    const auto gradient =
        fluid::layers::data("g", shape, fluid::DType::kFloat32, {.append_batch_size = false});
    optimizer.apply_gradients({{parameter, gradient}});
    fluid::Tensor g(fluid::DType::kFloat32, shape);
    std::fill_n(g.data<float>(), elements, 1e-6f);
    feed = {{"g", g}};
  }
};

// The least that updates can do: the gradient is read, other arrays are read and written, and there
// are as many roots and quotients as the rule has.
using Pass = void (*)(const float* g, float* a, float* b, float* c, float* d, int64_t elements);

FLEET_WIDEST void add_to_two(const float* __restrict g, float* __restrict a, float* __restrict b,
                             float*, float*, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    a[i] += g[i];
    b[i] += g[i];
  }
}

FLEET_WIDEST void add_to_three(const float* __restrict g, float* __restrict a, float* __restrict b,
                               float* __restrict c, float*, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    a[i] += g[i];
    b[i] += g[i];
    c[i] += g[i];
  }
}

// Norms first, and then the parameter, for which the moments are read again.
FLEET_WIDEST void add_in_two_passes(const float* __restrict g, float* __restrict a,
                                    float* __restrict b, float* __restrict c, float*,
                                    int64_t elements) {
  float norm = 1;
#pragma omp simd reduction(+ : norm)
  for (int64_t i = 0; i < elements; ++i) {
    b[i] += g[i];
    c[i] += g[i];
    norm += a[i] * a[i];
  }
  const float rate = 1e-6f / norm;
  for (int64_t i = 0; i < elements; ++i) a[i] -= rate * (b[i] + c[i]);
}

FLEET_WIDEST void root_and_quotient_of_two(const float* __restrict g, float* __restrict a,
                                           float* __restrict b, float*, float*, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    b[i] += g[i];
    a[i] -= g[i] / (std::sqrt(b[i]) + 1);
  }
}

FLEET_WIDEST void root_and_quotient(const float* __restrict g, float* __restrict a,
                                    float* __restrict b, float* __restrict c, float*,
                                    int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    b[i] += g[i];
    c[i] += g[i];
    a[i] -= b[i] / (std::sqrt(c[i]) + 1);
  }
}

FLEET_WIDEST void two_roots_and_quotient(const float* __restrict g, float* __restrict a,
                                         float* __restrict b, float* __restrict c, float*,
                                         int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    const float before = std::sqrt(c[i]);
    c[i] += g[i];
    const float after = std::sqrt(c[i]);
    b[i] += after - before;
    a[i] = b[i] / (after + 1);
  }
}

// Norms first: the direction, with root and quotient, is kept for the parameter.
FLEET_WIDEST void root_and_quotient_in_two_passes(const float* __restrict g, float* __restrict a,
                                                  float* __restrict b, float* __restrict c,
                                                  float* __restrict d, int64_t elements) {
  float norm = 1;
  float direction_norm = 1;
#pragma omp simd reduction(+ : norm, direction_norm)
  for (int64_t i = 0; i < elements; ++i) {
    b[i] += g[i];
    c[i] += g[i];
    d[i] = b[i] / (std::sqrt(c[i]) + 1) + a[i];
    norm += a[i] * a[i];
    direction_norm += d[i] * d[i];
  }
  const float rate = 1e-6f * norm / direction_norm;
  for (int64_t i = 0; i < elements; ++i) a[i] -= rate * d[i];
}

struct Floor {
  Pass pass;
  std::string what;
  int accesses;  // to an element's numbers, the gradient among them
};

const Floor kTwo = {add_to_two, "the same memory, added up", 5};
const Floor kThree = {add_to_three, "the same memory, added up", 7};

// Memory for passes. The arrays begin at different places of their pages: at equal ones a processor
// takes what is read for what has just been written.
class FloorMemory {
 public:
  explicit FloorMemory(int64_t elements) : elements_(elements) {
    constexpr int64_t kApart = 272;  // elements
    for (int64_t i = 0; i < 5; ++i) {
      memory_.push_back(fluid::Tensor::zeros(fluid::DType::kFloat32, {elements + 5 * kApart}));
      arrays_.push_back(memory_.back().data<float>() + i * kApart);
    }
    std::fill_n(arrays_[0], elements, 1e-6f);
  }

  // Gigabytes a second.
  double rate(const Floor& floor) const {
    const auto once = [&] {
      floor.pass(arrays_[0], arrays_[1], arrays_[2], arrays_[3], arrays_[4], elements_);
    };
    return gigabytes(floor) * rate_of(kSeconds, once).processor;
  }
  double gigabytes(const Floor& of_pass) const {
    return 4e-9 * of_pass.accesses * static_cast<double>(elements_);
  }

 private:
  int64_t elements_;
  std::vector<fluid::Tensor> memory_;
  std::vector<float*> arrays_;
};

template <class Optimizer>
Row update(const Rounds& rounds, int64_t elements, const Floor& floor) {
  Optimizer optimizer;
  const Update program(optimizer, elements);
  fluid::Executor executor(fluid::CPUPlace(), {.threads = 1, .op_threads = 1});
  executor.run(program.startup);
  const FloorMemory memory(elements);
  Row row = {.unit = "GB/s",
             .peer = floor.what,
             .kind = BenchPeer::kLimit,
             .target = 0.9,
             .note = instruction_set() + ", a processor second"};
  row.take(rounds.pairs(
      kRounds,
      [&] {
        const auto step = [&] { executor.run(program.main, program.feed); };
        return memory.gigabytes(floor) * rate_of(kSeconds, step).processor;
      },
      [&] { return memory.rate(floor); }));
  return row;
}

// Of a parameter in the caches, whose roots and quotients take time, and of one in memory.
template <class Optimizer>
void add_update(std::vector<Benchmark>& rows, const std::string& name, const Floor& in_caches,
                const Floor& in_memory) {
  rows.push_back({name + "_1m", [=](const Rounds& rounds) {
                    return update<Optimizer>(rounds, kSmall, in_caches);
                  }});
  rows.push_back({name + "_64m", [=](const Rounds& rounds) {
                    return update<Optimizer>(rounds, kLarge, in_memory);
                  }});
}

// What a kernel can at best reach here.
struct Roofline {
  double flops_per_s = 0;
  double bytes_per_s = 0;
};

Roofline roofline() {
  constexpr int64_t kSide = 512;
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  const auto x = fluid::layers::data("x", {kSide});
  fluid::layers::matmul(x, x);
  fluid::Executor executor;
  const fluid::Feed feed = {{"x", fluid::Tensor::zeros(fluid::DType::kFloat32, {kSide, kSide})}};
  const double products = rate_of(kSeconds, [&] { executor.run(main, feed); }).wall;
  return {.flops_per_s = products * 2 * kSide * kSide * kSide,
          .bytes_per_s = 1e9 * FloorMemory(kSmall).rate(kTwo)};
}

// A line of the table that FLAGS_profile writes (fluid/executor/profile_impl.h).
struct Line {
  std::string op;
  uint64_t count = 0;
  double seconds = 0;
  double bytes = 0;
  double gigaflops = 0;  // a second
};

std::vector<Line> read_profile(const std::string& folder) {
  std::vector<Line> lines;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    std::string text;
    std::getline(file, text);  // the titles
    while (std::getline(file, text)) {
      std::istringstream words(text);
      Line line;
      double milliseconds = 0;
      double mean = 0;
      double share = 0;
      std::string percent;
      std::string unit;
      words >> line.op >> line.count >> milliseconds >> mean >> share >> percent >> line.bytes >>
          unit >> line.gigaflops;
      line.seconds = 1e-3 * milliseconds;
      const size_t power = std::string_view("BkMGT").find(unit.front());
      for (size_t i = 0; i < power; ++i) line.bytes *= 1000;
      lines.push_back(line);
    }
  }
  return lines;
}

// Prints the kernels above 1 % of a step; returns how many.
int print_kernels(const std::string& name, int64_t rows, const Roofline& roof) {
  const TemporaryFolder folder;
  Net net = make_net(name, rows);
  fluid::Executor startup;
  startup.run(net.startup);
  setenv("FLAGS_profile", folder.file("profile").c_str(), 1);
  {
    fluid::Executor executor(fluid::CPUPlace(), startup.scope());
    rate_of(2 * kSeconds, [&] { net.train(executor); });
  }
  unsetenv("FLAGS_profile");
  const std::vector<Line> lines = read_profile(folder.file("profile"));
  double all = 0;
  for (const Line& line : lines) all += line.seconds;
  int printed = 0;
  for (const Line& line : lines) {
    if (line.seconds < 0.01 * all) continue;
    const double flops = 1e9 * line.gigaflops * line.seconds;
    const double least = std::max(flops / roof.flops_per_s, line.bytes / roof.bytes_per_s);
    std::printf(
        "  %-12s %-24s %5.1f %% of a step %9.1f us %7.1f GFLOP/s %7.1f GB/s  %4.2f of its "
        "roofline\n",
        name.c_str(), line.op.c_str(), 100 * line.seconds / all,
        1e6 * line.seconds / static_cast<double>(line.count), line.gigaflops,
        1e-9 * line.bytes / line.seconds, least / line.seconds);
    ++printed;
  }
  return printed;
}

Row kernel_table(const Rounds&) {
  const Roofline roof = roofline();
  int kernels = 0;
  kernels += print_kernels("mlp", 32, roof);
  kernels += print_kernels("lenet", 64, roof);
  kernels += print_kernels("resnet20", 64, roof);
  kernels += print_kernels("ctr_dense", 1000, roof);
  kernels += print_kernels("lstm", 32, roof);
  kernels += print_kernels("transformer", 16, roof);
  char roofs[96];
  std::snprintf(roofs, sizeof roofs, "%s, %.1f GFLOP/s, %.1f GB/s", instruction_set().c_str(),
                1e-9 * roof.flops_per_s, 1e-9 * roof.bytes_per_s);
  return {.value = static_cast<double>(kernels),
          .unit = "kernels",
          .peer = "their rooflines, above",
          .note = roofs};
}

std::vector<Benchmark> all() {
  namespace optimizer = fluid::optimizer;
  std::vector<Benchmark> rows;
  add_update<optimizer::Adam>(rows, "adam", {root_and_quotient, "its memory, root and quotient", 7},
                              kThree);
  add_update<optimizer::Momentum>(rows, "momentum", kTwo, kTwo);
  add_update<optimizer::Ftrl>(
      rows, "ftrl", {two_roots_and_quotient, "its memory, roots and quotient", 7}, kThree);
  add_update<optimizer::Adagrad>(
      rows, "adagrad", {root_and_quotient_of_two, "its memory, root and quotient", 5}, kTwo);
  add_update<optimizer::Lamb>(
      rows, "lamb",
      {root_and_quotient_in_two_passes, "its memory, root and quotient, two passes", 10},
      {add_in_two_passes, "the same memory, added up in two passes", 10});
  rows.push_back({"kernel_table", kernel_table});
  return rows;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  return fleet::benchmarks::bench_main(argc, argv,
                                       "Kernels of the engine against what the machine can do.",
                                       fleet::benchmarks::all());
}

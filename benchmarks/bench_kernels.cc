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
constexpr int64_t kElements = 1 << 20;

// One update after the other of a parameter; its gradient stays.
struct Update {
  fluid::Program main;
  fluid::Program startup;
  fluid::Feed feed;

  explicit Update(fluid::optimizer::Optimizer& optimizer) {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto parameter = fluid::layers::create_parameter({kElements});
    const auto gradient =
        fluid::layers::data("g", {kElements}, fluid::DType::kFloat32, {.append_batch_size = false});
    optimizer.apply_gradients({{parameter, gradient}});
    fluid::Tensor g(fluid::DType::kFloat32, {kElements});
    std::fill_n(g.data<float>(), kElements, 1e-6f);
    feed = {{"g", g}};
  }
};

// The least that updates can do: the gradient is read, two or three arrays read and written, and
// there are as many roots and quotients as the rule has.
using Pass = void (*)(const float* g, float* a, float* b, float* c, int64_t elements);

FLEET_WIDEST void add_up(const float* __restrict g, float* __restrict a, float* __restrict b,
                         float*, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    a[i] += g[i];
    b[i] += g[i];
  }
}

FLEET_WIDEST void root_and_quotient(const float* __restrict g, float* __restrict a,
                                    float* __restrict b, float* __restrict c, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    b[i] += g[i];
    c[i] += g[i];
    a[i] -= b[i] / (std::sqrt(c[i]) + 1);
  }
}

FLEET_WIDEST void two_roots_and_quotient(const float* __restrict g, float* __restrict a,
                                         float* __restrict b, float* __restrict c,
                                         int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    const float before = std::sqrt(c[i]);
    c[i] += g[i];
    const float after = std::sqrt(c[i]);
    b[i] += after - before;
    a[i] = b[i] / (after + 1);
  }
}

struct Floor {
  Pass pass;
  std::string what;
  size_t states;  // arrays that are written, the parameter among them
};

const Floor kMemory = {add_up, "the same memory, added up", 2};

// Passes a second. The arrays begin at different places of their pages: at equal ones a processor
// takes what is read for what has just been written.
double floor_rate(const Floor& floor) {
  constexpr int64_t kApart = 272;  // elements
  std::vector<fluid::Tensor> memory;
  std::vector<float*> arrays;
  for (int64_t i = 0; i < 4; ++i) {
    memory.push_back(fluid::Tensor::zeros(fluid::DType::kFloat32, {kElements + 4 * kApart}));
    arrays.push_back(memory.back().data<float>() + i * kApart);
  }
  std::fill_n(arrays[0], kElements, 1e-6f);
  const auto once = [&] { floor.pass(arrays[0], arrays[1], arrays[2], arrays[3], kElements); };
  return rate_of(kSeconds, once).processor;
}

double bytes_of_pass(size_t states) {
  return 4.0 * static_cast<double>(2 * states + 1);
}

template <class Optimizer, class Options>
Row update(const Rounds& rounds, const Options& options, const Floor& floor) {
  Optimizer optimizer(options);
  const Update program(optimizer);
  fluid::Executor executor;
  executor.run(program.startup);
  const double gigabytes = 1e-9 * bytes_of_pass(floor.states) * kElements;
  Row row = {.unit = "GB/s",
             .peer = floor.what,
             .kind = BenchPeer::kLimit,
             .target = 0.8,
             .note = instruction_set() + ", a processor second"};
  row.take(rounds.pairs(
      kRounds,
      [&] {
        const auto step = [&] { executor.run(program.main, program.feed); };
        return gigabytes * rate_of(kSeconds, step).processor;
      },
      [&] { return gigabytes * floor_rate(floor); }));
  return row;
}

Row adam(const Rounds& rounds) {
  return update<fluid::optimizer::Adam>(rounds, fluid::optimizer::AdamOptions{},
                                        {root_and_quotient, "its memory, root and quotient", 3});
}
Row momentum(const Rounds& rounds) {
  return update<fluid::optimizer::Momentum>(rounds, fluid::optimizer::MomentumOptions{}, kMemory);
}
Row ftrl(const Rounds& rounds) {
  return update<fluid::optimizer::Ftrl>(
      rounds, fluid::optimizer::FtrlOptions{},
      {two_roots_and_quotient, "its memory, roots and quotient", 3});
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
          .bytes_per_s = floor_rate(kMemory) * bytes_of_pass(kMemory.states) * kElements};
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
  const Net net = make_net(name, rows);
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

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Kernels of the engine against what the machine can do.",
                    {{"adam_1m", adam},
                     {"momentum_1m", momentum},
                     {"ftrl_1m", ftrl},
                     {"kernel_table", kernel_table}});
}

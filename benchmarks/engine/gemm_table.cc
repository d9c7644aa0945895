// Measures which back end multiplies fastest, for every cell of the table in
// fluid/kernels/cpu/math/gemm_backend.cc, and prints the table of this machine's instruction set.
// Use: scripts/gemm_table.sh.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/gemm.h"

namespace fleet::benchmarks {
namespace {

using fluid::GemmShape;
using fluid::cpu::Gemm;
using fluid::cpu::kGemmTableSizes;

constexpr double kSeconds = 0.001;  // of a try, at least
constexpr int kTries = 3;
constexpr double kLong = 0.02;  // a product that takes so long is tried once
// Cells of more multiply-adds are as those of half the depth.
constexpr int64_t kMostProducts = int64_t{1} << 29;
// A later back end of the list has to be so much faster than those before it.
constexpr double kWorthIt = 0.97;

// In the middle of the sizes of a cell.
int64_t size_of(int64_t cell) {
  return cell == 0 ? 1 : (int64_t{3} << cell) / 2;
}

bool is_wide() {
  return fluid::cpu::isa_loops().lanes > fluid::cpu::avx2_loops()->lanes;
}

class Cells {
 public:
  Cells()
      : memory_(3 * static_cast<size_t>(size_of(kGemmTableSizes - 1)) *
                    static_cast<size_t>(size_of(kGemmTableSizes - 1)),
                0.5f) {}

  char fastest(const GemmShape& shape) {
    std::vector<std::pair<char, std::unique_ptr<Gemm<float>>>> ends;
    ends.emplace_back('t', fluid::cpu::tile_gemm<float>(shape));
    ends.emplace_back('b', fluid::cpu::blocked_gemm<float>(shape));
    if (is_wide()) {
      if (auto gemm = fluid::cpu::onednn_gemm(shape)) ends.emplace_back('d', std::move(gemm));
    }
    std::vector<double> least(ends.size(), 1e9);
    for (int i = 0; i < kTries && (i == 0 || least.back() < kLong); ++i) {
      for (size_t j = 0; j < ends.size(); ++j) {
        least[j] = std::min(least[j], seconds(*ends[j].second));
      }
    }
    size_t best = 0;
    for (size_t j = 1; j < ends.size(); ++j) {
      if (least[j] < kWorthIt * least[best]) best = j;
    }
    return ends[best].first;
  }

 private:
  double seconds(Gemm<float>& gemm) {
    using Clock = std::chrono::steady_clock;
    const float* a = memory_.data();
    const float* b = a + memory_.size() / 3;
    float* c = memory_.data() + memory_.size() / 3 * 2;
    const auto begin = Clock::now();
    double elapsed = 0;
    int runs = 0;
    for (; elapsed < kSeconds; ++runs) {
      gemm.run(a, b, c, scratch_, Tiles());
      elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    return elapsed / runs;
  }

  std::vector<float> memory_;
  fluid::Scratch scratch_;
};

// Two lines.
void print_row(const std::array<std::string, kGemmTableSizes>& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const bool breaks = i + 1 == row.size() / 2;
    std::printf("%s\"%s\"%s", i == 0 ? "     {" : "", row[i].c_str(),
                i + 1 == row.size() ? "},\n" : (breaks ? ",\n      " : ", "));
  }
}

void print_table() {
  std::printf("// Written by scripts/gemm_table.sh on a machine with %s.\n",
              fluid::cpu::isa_loops().name);
  Cells cells;
  for (int layout = 0; layout < 3; ++layout) {
    std::puts(layout == 0 ? "// clang-format off\n    {" : "    {");
    for (int64_t m = 0; m < kGemmTableSizes; ++m) {
      std::array<std::string, kGemmTableSizes> row;
      for (int64_t n = 0; n < kGemmTableSizes; ++n) {
        for (int64_t k = 0; k < kGemmTableSizes; ++k) {
          const GemmShape shape = {.m = size_of(m),
                                   .n = size_of(n),
                                   .k = size_of(k),
                                   .transpose_a = layout == 1,
                                   .transpose_b = layout == 2};
          std::string& letters = row[static_cast<size_t>(n)];
          const bool huge = shape.m * shape.n * shape.k > kMostProducts;
          letters += huge ? letters.back() : cells.fastest(shape);
        }
      }
      print_row(row);
    }
    std::puts(layout == 2 ? "    }\n// clang-format on" : "    },");
  }
}

}  // namespace
}  // namespace fleet::benchmarks

int main() {
  fleet::benchmarks::print_table();
  return 0;
}

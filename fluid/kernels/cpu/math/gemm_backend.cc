#include <algorithm>
#include <bit>
#include <cstdint>

#include "fluid/kernels/cpu/math/gemm.h"

namespace fleet::fluid::cpu {
namespace {

// By how operands lie (A * B, A transposed, B transposed), m and n; a letter for each k.
using Table = const char* const[3][kGemmTableSizes][kGemmTableSizes];

constexpr Table kAvx2 = {
#include "fluid/kernels/cpu/math/gemm_table_avx2.inc"
};
constexpr Table kAvx512 = {
#include "fluid/kernels/cpu/math/gemm_table_avx512.inc"
};

int64_t cell_of(int64_t size) {
  if (size <= 1) return 0;
  return std::min<int64_t>(std::bit_width(static_cast<uint64_t>(size)) - 1, kGemmTableSizes - 1);
}

}  // namespace

GemmBackend gemm_backend(const GemmShape& shape) {
  const bool wide = isa_loops().lanes > avx2_loops()->lanes;
  const int layout = shape.transpose_b ? 2 : (shape.transpose_a ? 1 : 0);
  const auto& by_m = (wide ? kAvx512 : kAvx2)[layout];
  switch (by_m[cell_of(shape.m)][cell_of(shape.n)][cell_of(shape.k)]) {
    case 'b':
      return GemmBackend::kBlocked;
    case 'd':
      return GemmBackend::kOneDnn;
    default:
      return GemmBackend::kTile;
  }
}

}  // namespace fleet::fluid::cpu

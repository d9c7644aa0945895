// The inner loops that pay for instruction sets above the baseline: chosen once, at run time. The
// same source (isa_loops.inc) is compiled for each set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fleet::fluid::cpu {

// C[m, n] = op(A)[m, k] * B[k, n], all row-major with leading dimensions in elements; op transposes
// when `transpose_a` is set, A then being [k, m]. Each element is one chain of fused
// multiply-adds over ascending k, so its bits depend neither on m nor on n.
template <class T>
struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const T* a = nullptr;
  int64_t lda = 0;
  bool transpose_a = false;
  const T* b = nullptr;
  int64_t ldb = 0;
  T* c = nullptr;
  int64_t ldc = 0;
};

// C[m, n] = A * B, or C + A * B, of operands in panels: of A [panel, k, panel_rows], of B
// [panel, k, panel_columns], panels a_step and b_step elements apart; or of A as it lies, its rows
// lda elements apart. Elements are chains as above, which go on from what C has where it adds.
template <class T>
struct GemmBlock {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const T* a = nullptr;
  int64_t lda = 0;  // 0: in panels
  int64_t a_step = 0;
  const T* b = nullptr;
  int64_t b_step = 0;
  T* c = nullptr;
  int64_t ldc = 0;
  bool adds = false;
};

// Images in lanes: for every number of an image there are IsaLoops::lanes side by side, one of each
// of as many images. Sizes and steps below count such groups of numbers.

// out[row, y, x] = sum over (plane, i, j), ascending, of
//   filter[plane, i, j, row] * in[plane, y - above + i * high.dilation, x + j * wide.dilation],
// one chain of fused multiply-adds; what is above or below the image is left out.
struct LaneProduct {
  struct Axis {
    int64_t kernel = 1;
    int64_t dilation = 1;
    int64_t out = 0;
  };
  Axis high;
  Axis wide;
  const float* in = nullptr;  // [planes, height, width]
  int64_t planes = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Columns [begin, end) of `in` are the image's, the others zeros.
  int64_t begin = 0;
  int64_t end = 0;
  int64_t above = 0;
  const float* filter = nullptr;  // single numbers
  int64_t rows = 0;               // at most IsaLoops::product_rows
  float* out = nullptr;
};

// sums[row, tap] += dst[row, y, x] * src[tap_offsets[tap] + y * src_width + x] for every y and x,
// lane by lane.
struct LaneGradient {
  const float* src = nullptr;
  int64_t src_width = 0;
  const int64_t* tap_offsets = nullptr;
  int64_t taps = 0;
  const float* dst = nullptr;  // [rows, height, width]
  int64_t rows = 0;
  int64_t height = 0;
  int64_t width = 0;
  float* sums = nullptr;  // [rows, taps]
};

// Element i of the output depends on element i of the inputs only, by the same operations at every
// position: bits do not depend on where an array is cut. In and out may be the same array.
struct IsaLoops {
  const char* name;
  void (*gemm_f32)(const GemmArgs<float>& args);
  void (*gemm_f64)(const GemmArgs<double>& args);
  // Largest error 4 units in the last place, checked by isa_test.
  void (*exp)(const float* x, float* out, size_t n);
  void (*tanh)(const float* x, float* out, size_t n);
  void (*sigmoid)(const float* x, float* out, size_t n);
  void (*log)(const float* x, float* out, size_t n);
  void (*log1p)(const float* x, float* out, size_t n);
  void (*erf)(const float* x, float* out, size_t n);
  int64_t lanes;
  int64_t product_rows;
  int64_t gradient_rows;  // that lane_gradient takes at a time
  void (*lane_product)(const LaneProduct& args);
  void (*lane_gradient)(const LaneGradient& args);
  int64_t panel_rows;
  void (*gemm_block_f32)(const GemmBlock<float>& args);
  void (*gemm_block_f64)(const GemmBlock<double>& args);

  // Two vectors.
  template <class T>
  int64_t panel_columns() const {
    return 2 * lanes * int64_t{sizeof(float)} / int64_t{sizeof(T)};
  }
  void gemm_block(const GemmBlock<float>& args) const { gemm_block_f32(args); }
  void gemm_block(const GemmBlock<double>& args) const { gemm_block_f64(args); }
};

// The best set that this machine runs.
const IsaLoops& isa_loops();

// Each set alone; null when this machine lacks it. For tests and benchmarks.
const IsaLoops* avx2_loops();
const IsaLoops* avx512_loops();

}  // namespace fleet::fluid::cpu

#include <immintrin.h>

#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid::cpu {
namespace {

// Tiles of isa_lanes.inc.
constexpr int kProductRows = 6;
constexpr int kGradientRows = 3;
constexpr int kGradientTaps = 4;

constexpr int kTileRows = 6;

template <class T>
struct Traits;

template <>
struct Traits<float> {
  using Vector = __m256;
  static constexpr int kWidth = 8;
  static __m256i mask(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load_tail(const float* p, __m256i mask) { return _mm256_maskload_ps(p, mask); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static void store_tail(float* p, __m256i mask, Vector v) { _mm256_maskstore_ps(p, mask, v); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector min(Vector a, Vector b) { return _mm256_min_ps(a, b); }
  static Vector max(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
};

template <>
struct Traits<double> {
  using Vector = __m256d;
  static constexpr int kWidth = 4;
  static __m256i mask(int64_t count) {
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
  }
  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static Vector load_tail(const double* p, __m256i mask) { return _mm256_maskload_pd(p, mask); }
  static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  static void store_tail(double* p, __m256i mask, Vector v) { _mm256_maskstore_pd(p, mask, v); }
  static Vector broadcast(double x) { return _mm256_set1_pd(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
};

#include "fluid/kernels/cpu/isa_blocks.inc"
#include "fluid/kernels/cpu/isa_lanes.inc"
#include "fluid/kernels/cpu/isa_loops.inc"

}  // namespace

const IsaLoops* avx2_loops() {
  static constexpr IsaLoops kLoops = {"avx2",
                                      gemm<float>,
                                      gemm<double>,
                                      exp_loop,
                                      tanh_loop,
                                      sigmoid_loop,
                                      log_loop,
                                      log1p_loop,
                                      erf_loop,
                                      Traits<float>::kWidth,
                                      kProductRows,
                                      kGradientRows,
                                      lane_product,
                                      lane_gradient,
                                      kTileRows,
                                      gemm_block<float>,
                                      gemm_block<double>};
  return &kLoops;
}

}  // namespace fleet::fluid::cpu

#include <immintrin.h>

#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid::cpu {
namespace {

// Tiles of isa_lanes.inc.
constexpr int kProductRows = 12;
constexpr int kGradientRows = 5;
constexpr int kGradientTaps = 5;

constexpr int kTileRows = 8;

template <class T>
struct Traits;

template <>
struct Traits<float> {
  using Vector = __m512;
  static constexpr int kWidth = 16;
  static __mmask16 mask(int64_t count) {
    return static_cast<__mmask16>((uint32_t{1} << count) - 1);
  }
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector load_tail(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static void store_tail(float* p, __mmask16 mask, Vector v) { _mm512_mask_storeu_ps(p, mask, v); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector min(Vector a, Vector b) { return _mm512_min_ps(a, b); }
  static Vector max(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
};

template <>
struct Traits<double> {
  using Vector = __m512d;
  static constexpr int kWidth = 8;
  static __mmask8 mask(int64_t count) { return static_cast<__mmask8>((uint32_t{1} << count) - 1); }
  static Vector zero() { return _mm512_setzero_pd(); }
  static Vector load(const double* p) { return _mm512_loadu_pd(p); }
  static Vector load_tail(const double* p, __mmask8 mask) { return _mm512_maskz_loadu_pd(mask, p); }
  static void store(double* p, Vector v) { _mm512_storeu_pd(p, v); }
  static void store_tail(double* p, __mmask8 mask, Vector v) { _mm512_mask_storeu_pd(p, mask, v); }
  static Vector broadcast(double x) { return _mm512_set1_pd(x); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
};

#include "fluid/kernels/cpu/isa_blocks.inc"
#include "fluid/kernels/cpu/isa_lanes.inc"
#include "fluid/kernels/cpu/isa_loops.inc"

}  // namespace

const IsaLoops* avx512_loops() {
  static constexpr IsaLoops kLoops = {
      "avx512",          gemm<float>,       gemm<double>, exp_loop,      tanh_loop,
      sigmoid_loop,      log_loop,          log1p_loop,   erf_loop,      Traits<float>::kWidth,
      kProductRows,      kGradientRows,     lane_product, lane_gradient, kTileRows,
      gemm_block<float>, gemm_block<double>};
  const bool available = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  return available ? &kLoops : nullptr;
}

}  // namespace fleet::fluid::cpu

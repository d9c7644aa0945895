#include "base/numbers/half.h"

#include <array>
#include <bit>
#include <cstring>
#include <immintrin.h>

namespace fleet {
namespace {

constexpr size_t kLanes = 8;

void eight_floats(const uint16_t* in, float* out) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
}

void eight_halves(const float* in, uint16_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
}

// Eight at a time; the last ones through arrays of eight.
template <class In, class Out>
void by_eight(const In* in, Out* out, size_t n, void (*convert)(const In*, Out*)) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) convert(in + i, out + i);
  if (i == n) return;
  std::array<In, kLanes> rest{};
  std::array<Out, kLanes> converted;
  std::memcpy(rest.data(), in + i, (n - i) * sizeof(In));
  convert(rest.data(), converted.data());
  std::memcpy(out + i, converted.data(), (n - i) * sizeof(Out));
}

}  // namespace

void float_of_float16(const uint16_t* in, float* out, size_t n) {
  by_eight(in, out, n, eight_floats);
}

void float16_of_float(const float* in, uint16_t* out, size_t n) {
  by_eight(in, out, n, eight_halves);
}

void float_of_bfloat16(const uint16_t* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
}

void bfloat16_of_float(const float* in, uint16_t* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(in[i]);
    // Half of the last place that stays, less one where that place is even: a tie goes to even.
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    out[i] = static_cast<uint16_t>((is_nan ? bits | 0x400000 : rounded) >> 16);
  }
}

}  // namespace fleet

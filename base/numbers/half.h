// float16 (IEEE 754 binary16) and bfloat16 (the upper half of a float), carried as 16-bit words.
//
// Rounding is to nearest, ties to even. What is too large becomes infinite, what is too small a
// subnormal number or zero, and a NaN stays a NaN, made quiet. Any thread may call everything here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fleet {

void float_of_float16(const uint16_t* in, float* out, size_t n);
void float16_of_float(const float* in, uint16_t* out, size_t n);

void float_of_bfloat16(const uint16_t* in, float* out, size_t n);
void bfloat16_of_float(const float* in, uint16_t* out, size_t n);

}  // namespace fleet

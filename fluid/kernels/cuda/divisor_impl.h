// Division by numbers that are known before a kernel is put on a stream: a product and a shift,
// where a division takes some twenty instructions (Granlund and Montgomery, Division by Invariant
// Integers using Multiplication, 1994).
#pragma once

#include <array>
#include <cstdint>
#include <cuda_runtime.h>

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// Of numbers below 2^32 by one of 1 to 2^32 - 1.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(int64_t by) : by_(static_cast<uint32_t>(by)) {
    while (shift_ < 32 && (uint64_t{1} << shift_) < by_) ++shift_;
    const uint64_t rest = (uint64_t{1} << shift_) - by_;
    factor_ = static_cast<uint32_t>((rest << 32) / by_ + 1);
  }

  __device__ uint32_t quotient(uint32_t n) const {
    const uint64_t high = static_cast<uint64_t>(n) * factor_ >> 32;
    return static_cast<uint32_t>((high + n) >> shift_);
  }
  // n becomes its quotient; returns the rest.
  __device__ uint32_t split(uint32_t& n) const {
    const uint32_t all = n;
    n = quotient(all);
    return all - n * by_;
  }

 private:
  uint32_t by_ = 1;
  uint32_t factor_ = 1;
  uint32_t shift_ = 0;
};

// Of numbers below `most`: by a Divisor where that is small enough, else by a division.
class WideDivisor {
 public:
  WideDivisor() = default;
  WideDivisor(int64_t by, int64_t most)
      : by_(by), narrow_(most <= UINT32_MAX && by > 0 && by <= UINT32_MAX) {
    if (narrow_) divisor_ = Divisor(by);
  }

  __device__ int64_t quotient(int64_t n) const {
    return narrow_ ? divisor_.quotient(static_cast<uint32_t>(n)) : n / by_;
  }
  __device__ int64_t split(int64_t& n) const {
    const int64_t all = n;
    n = quotient(all);
    return all - n * by_;
  }

 private:
  int64_t by_ = 1;
  Divisor divisor_;
  bool narrow_ = true;
};

// Where the elements of up to kMost dimensions, numbered in row-major order, are in kArrays arrays.
template <int kArrays, int kMost = kMaxDims>
class Places {
 public:
  struct At {
    int64_t of[kArrays];
  };

  // steps[a][d]: from one element to the next along dimension d, in array a. No size is 0 unless
  // nobody asks for an element.
  Places(int rank, const int64_t* sizes, std::array<const int64_t*, kArrays> steps) : rank_(rank) {
    int64_t count = 1;
    for (int d = 0; d < rank; ++d) count *= sizes[d];
    narrow_ = count > 0 && count <= INT32_MAX;
    for (int a = 0; a < kArrays; ++a) {
      int64_t farthest = 0;
      for (int d = 0; d < rank; ++d) {
        step_[a][d] = steps[a][d];
        farthest += (sizes[d] - 1) * (steps[a][d] < 0 ? -steps[a][d] : steps[a][d]);
      }
      narrow_ = narrow_ && farthest <= INT32_MAX;
    }
    for (int d = 0; d < rank; ++d) {
      size_[d] = sizes[d];
      if (narrow_) divisor_[d] = Divisor(sizes[d]);
    }
  }

  __device__ At at(int64_t i) const { return narrow_ ? narrow(static_cast<uint32_t>(i)) : wide(i); }

 private:
  // Positions are added up modulo 2^32, and fit into 31 bits and a sign.
  __device__ At narrow(uint32_t i) const {
    uint32_t sums[kArrays] = {};
    for (int d = rank_ - 1; d >= 0; --d) {
      const uint32_t part = d == 0 ? i : divisor_[d].split(i);
      for (int a = 0; a < kArrays; ++a) sums[a] += part * static_cast<uint32_t>(step_[a][d]);
    }
    At at;
    for (int a = 0; a < kArrays; ++a) at.of[a] = static_cast<int32_t>(sums[a]);
    return at;
  }
  __device__ At wide(int64_t i) const {
    At at = {};
    for (int d = rank_ - 1; d >= 0; --d) {
      const int64_t part = d == 0 ? i : i % size_[d];
      i /= size_[d];
      for (int a = 0; a < kArrays; ++a) at.of[a] += part * step_[a][d];
    }
    return at;
  }

  int rank_;
  bool narrow_;
  Divisor divisor_[kMost];
  int64_t size_[kMost] = {};
  int64_t step_[kArrays][kMost] = {};
};

}  // namespace fleet::fluid::cuda

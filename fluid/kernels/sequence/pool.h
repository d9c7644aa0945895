// What ops sequence_pool and sequence_pool_grad do, on every device.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid {

class PrepareContext;
struct SequenceInput;
class Tensor;

enum class SequencePool { kSum, kAverage, kSqrt, kMax, kFirst, kLast };

// Of attribute pooltype; throws ProgramError for one that is not known.
SequencePool sequence_pool_of(const PrepareContext& context);

// A sum, perhaps times a number.
FLEET_HOST_DEVICE inline bool is_sum(SequencePool pool) {
  return pool == SequencePool::kSum || pool == SequencePool::kAverage ||
         pool == SequencePool::kSqrt;
}

// What the sum over `length` rows is multiplied by.
template <class T>
FLEET_HOST_DEVICE T pool_factor(SequencePool pool, int64_t length) {
  if (pool == SequencePool::kAverage) return T{1} / static_cast<T>(length);
  if (pool == SequencePool::kSqrt) return T{1} / std::sqrt(static_cast<T>(length));
  return T{1};
}

// Throws ProgramError unless the gradient has a row for each of `count` sequences.
void require_pooled(const SequenceInput& x, const Tensor& grad, int64_t count);

}  // namespace fleet::fluid

// The arithmetic of simulated jobs: a toy model whose gradients depend on the values they are made
// from, a toy optimizer, and what both come to when one thread does all of it in order.
//
// Slices that exchange scale their gradients by what all of them have in common, and with two
// exchanges shift them as well.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/core/value.h"
#include "tests/testing/sim_job.h"

namespace fleet::testing {

using Values = std::vector<std::vector<float>>;  // by slice

float initial_value(size_t slice, size_t element);
// Zeros for rows that the shard's gradient does not have.
std::vector<float> gradient_vector(const SimJob& job, uint64_t step, int shard, size_t slice,
                                   const std::vector<float>& values);
// The rows of such a gradient.
fluid::SelectedRows gradient_rows(uint64_t step, int shard, size_t slice,
                                  const std::vector<float>& gradient);

inline constexpr float kRate = 0.1F;

bool takes_part(const SimJob& job, size_t slice);
bool takes_rows(const SimJob& job, size_t slice);
// Whether the worker has no gradient of the slice in the step.
bool skips(const SimJob& job, uint64_t step, uint32_t worker, size_t slice);
// What a slice says in an exchange of its gradients.
float share_of(uint32_t exchange, const std::vector<float>& gradient);
float total_of(const float* shares, size_t count);
void average(std::vector<float>& gradient, int shards);
void use_total(uint32_t exchange, float total, std::vector<float>& gradient);
void descend(std::vector<float>& values, const std::vector<float>& gradient);

uint64_t steps_of(const SimJob& job, uint32_t worker);

// The values that sequential arithmetic gives, by step (0: the initial ones) and slice.
std::vector<Values> reference_values(const SimJob& job);

}  // namespace fleet::testing

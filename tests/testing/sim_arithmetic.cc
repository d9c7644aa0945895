#include "tests/testing/sim_arithmetic.h"

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "base/shard_tree.h"

namespace fleet::testing {
namespace {

// Whether a shard's gradient of a slice of rows has the row.
bool has_row(uint64_t step, int shard, size_t slice, size_t row) {
  return mix64(step * 31 + static_cast<uint64_t>(shard) * 7907 + slice * 104723 + row) % 3 == 0;
}

// Magnitudes differ widely, so that the order of additions shows in the bits.
float gradient_of(uint64_t step, int shard, size_t slice, size_t element, float value) {
  const uint64_t draw =
      mix64(step * 7919 + static_cast<uint64_t>(shard) * 104729 + slice * 31 + element * 1299709);
  const auto scale = static_cast<float>(uint64_t{1} << (draw % 12));
  return (static_cast<float>((draw >> 16) % 2001) - 1000.0F) * scale * 1e-4F + 0.01F * value;
}

// The tree's sum over the shards that contribute, by the definition.
std::optional<std::vector<float>> sum_over(const SimJob& job, ShardRange node,
                                           const std::vector<bool>& contributes, uint64_t step,
                                           size_t slice, const std::vector<float>& values) {
  if (node.size() == 1) {
    if (!contributes[static_cast<size_t>(node.begin)]) return std::nullopt;
    return gradient_vector(job, step, node.begin, slice, values);
  }
  const int middle = node.begin + tree_split(node.size());
  auto left = sum_over(job, {node.begin, middle}, contributes, step, slice, values);
  const auto right = sum_over(job, {middle, node.end}, contributes, step, slice, values);
  if (!left || !right) return left ? left : right;
  for (size_t i = 0; i < left->size(); ++i) (*left)[i] += (*right)[i];
  return left;
}

// One step of all slices. `contributing` gives, of a slice, which shards have a gradient.
template <class Contributing>
void step_all(const SimJob& job, Values& values, uint64_t step, const Contributing& contributing) {
  const int shards = static_cast<int>(job.shard_count());
  Values gradients;
  for (size_t slice = 0; slice < values.size(); ++slice) {
    const std::vector<bool> contributes = contributing(slice);
    const auto count = std::count(contributes.begin(), contributes.end(), true);
    const auto sum = sum_over(job, {0, shards}, contributes, step, slice, values[slice]);
    gradients.push_back(sum.value_or(std::vector<float>(values[slice].size())));
    if (count > 0) average(gradients.back(), static_cast<int>(count));
  }
  for (uint32_t exchange = 0; exchange < job.exchanges; ++exchange) {
    std::vector<float> shares;
    for (size_t slice = 0; slice < values.size(); ++slice) {
      if (takes_part(job, slice)) shares.push_back(share_of(exchange, gradients[slice]));
    }
    const float total = total_of(shares.data(), shares.size());
    for (size_t slice = 0; slice < values.size(); ++slice) {
      if (takes_part(job, slice)) use_total(exchange, total, gradients[slice]);
    }
  }
  for (size_t slice = 0; slice < values.size(); ++slice) {
    descend(values[slice], gradients[slice]);
  }
}

}  // namespace

float initial_value(size_t slice, size_t element) {
  return static_cast<float>(mix64(slice * 1000 + element) % 1000) / 512.0F;
}

std::vector<float> gradient_vector(const SimJob& job, uint64_t step, int shard, size_t slice,
                                   const std::vector<float>& values) {
  std::vector<float> gradient(values.size(), 0.0F);
  for (size_t i = 0; i < values.size(); ++i) {
    if (takes_rows(job, slice) && !has_row(step, shard, slice, i)) continue;
    gradient[i] = gradient_of(step, shard, slice, i, values[i]);
  }
  return gradient;
}

fluid::SelectedRows gradient_rows(uint64_t step, int shard, size_t slice,
                                  const std::vector<float>& gradient) {
  fluid::SelectedRows rows;
  rows.height = static_cast<int64_t>(gradient.size());
  std::vector<float> values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!has_row(step, shard, slice, i)) continue;
    rows.rows.push_back(static_cast<int64_t>(i));
    values.push_back(gradient[i]);
  }
  rows.value = fluid::Tensor(fluid::DType::kFloat32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), rows.value.data<float>());
  return rows;
}

bool takes_part(const SimJob& job, size_t slice) {
  return job.exchanges > 0 && slice % 3 != 2;
}

bool takes_rows(const SimJob& job, size_t slice) {
  return job.rows && slice % 3 == 2;
}

bool skips(const SimJob& job, uint64_t step, uint32_t worker, size_t slice) {
  return job.skips_rows && takes_rows(job, slice) &&
         mix64(step * 65537 + worker * 257 + slice) % 3 == 0;
}

float share_of(uint32_t exchange, const std::vector<float>& gradient) {
  float sum = 0.0F;
  for (const float g : gradient) sum += exchange == 0 ? g * g : g;
  return sum;
}

float total_of(const float* shares, size_t count) {
  float sum = 0.0F;
  for (size_t i = 0; i < count; ++i) sum += shares[i];
  return sum;
}

void average(std::vector<float>& gradient, int shards) {
  const float scale = 1.0F / static_cast<float>(shards);
  for (float& g : gradient) g *= scale;
}

void use_total(uint32_t exchange, float total, std::vector<float>& gradient) {
  for (float& g : gradient) g = exchange == 0 ? g / (1.0F + total) : g + 0.125F * total;
}

void descend(std::vector<float>& values, const std::vector<float>& gradient) {
  for (size_t i = 0; i < values.size(); ++i) values[i] -= kRate * gradient[i];
}

uint64_t steps_of(const SimJob& job, uint32_t worker) {
  return worker < job.uneven_steps.size() ? job.uneven_steps[worker] : job.steps;
}

std::vector<Values> reference_values(const SimJob& job) {
  Values values;
  for (size_t slice = 0; slice < job.slices.size(); ++slice) {
    std::vector<float>& now = values.emplace_back();
    for (size_t i = 0; i < job.slices[slice]; ++i) now.push_back(initial_value(slice, i));
  }
  std::vector<Values> history{values};
  for (uint64_t step = 1; step <= job.steps; ++step) {
    step_all(job, values, step, [&](size_t slice) {
      std::vector<bool> contributes(job.shard_count(), false);
      for (uint32_t worker = 0; worker < job.workers; ++worker) {
        const ShardRange owned =
            owned_shards(static_cast<int>(worker), static_cast<int>(job.workers),
                         static_cast<int>(job.shard_count()));
        for (int s = owned.begin; s < owned.end; ++s) {
          contributes[static_cast<size_t>(s)] =
              step <= steps_of(job, worker) && !skips(job, step, worker, slice);
        }
      }
      return contributes;
    });
    history.push_back(values);
  }
  return history;
}

}  // namespace fleet::testing

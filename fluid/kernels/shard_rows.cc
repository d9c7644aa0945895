#include "fluid/kernels/shard_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/shard_tree.h"
#include "fluid/core/row_sum.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/row_groups.h"
#include "fluid/tables/merge_rows.h"

namespace fleet::fluid {
namespace {

SelectedRows sum_doubles(std::span<const SelectedRows> shards) {
  const Shape& shape = shards.front().value.shape();
  const int64_t height = shards.front().height;
  std::vector<cpu::MergedRows<double>> merged(shards.size());
  std::vector<RowsView<double>> parts;
  for (size_t s = 0; s < shards.size(); ++s) {
    merged[s].merge(shards[s], height, shape.numel(1, shape.rank()));
    parts.push_back({merged[s].rows(), merged[s].values()});
  }
  return sum_of_parts<double>(parts, height, shape, tree_sum<double>);
}

// Row numbers in the order of whole numbers without a sign.
constexpr uint64_t kSign = uint64_t{1} << 63;

std::vector<uint64_t> keys_of(const SelectedRows& shard, int64_t height) {
  if (height != SelectedRows::kNoHeight) require_height(shard, "a sum of selected rows");
  check_row_numbers(shard.rows, height);
  std::vector<uint64_t> keys;
  keys.reserve(shard.rows.size());
  for (const int64_t row : shard.rows) keys.push_back(static_cast<uint64_t>(row) ^ kSign);
  return keys;
}

SelectedRows sum_floats(std::span<const SelectedRows> shards) {
  Shape shape = shards.front().value.shape();
  const int64_t height = shards.front().height;
  const auto width = static_cast<size_t>(shape.numel(1, shape.rank()));
  std::vector<std::vector<uint64_t>> keys;
  std::vector<tables::ContributedRows> parts;
  for (const SelectedRows& shard : shards) {
    keys.push_back(keys_of(shard, height));
    parts.push_back({keys.back(), shard.rows.empty() ? nullptr : shard.value.data<float>()});
  }
  tables::MergedRows merged;
  tables::merge_rows(parts, width, merged);
  SelectedRows sum{.rows = {}, .height = height, .value = {}};
  for (const uint64_t key : merged.keys) sum.rows.push_back(static_cast<int64_t>(key ^ kSign));
  shape.set(0, static_cast<int64_t>(sum.rows.size()));
  sum.value = Tensor(DType::kFloat32, shape);
  std::copy_n(merged.values(), sum.rows.size() * width, sum.value.data<float>());
  return sum;
}

template <class T>
void scale(Tensor& tensor, size_t shards) {
  const T factor = T{1} / static_cast<T>(shards);
  T* values = tensor.data<T>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] *= factor;
}

bool is_double(std::span<const SelectedRows> shards) {
  return shards.front().value.dtype() == DType::kFloat64;
}

}  // namespace

SelectedRows sum_of_rows(std::span<const SelectedRows> shards) {
  return is_double(shards) ? sum_doubles(shards) : sum_floats(shards);
}

SelectedRows mean_of_rows(std::span<const SelectedRows> shards) {
  SelectedRows mean = sum_of_rows(shards);
  if (is_double(shards)) {
    scale<double>(mean.value, shards.size());
  } else {
    scale<float>(mean.value, shards.size());
  }
  return mean;
}

}  // namespace fleet::fluid

#include "fluid/executor/shard_rows.h"

#include <algorithm>
#include <vector>

#include "base/shard_tree.h"
#include "fluid/kernels/cpu/optimize/update.h"

namespace fleet::fluid {
namespace {

template <class T>
SelectedRows mean_as(std::span<const SelectedRows> shards) {
  const Shape& first = shards.front().value.shape();
  const int64_t width = first.numel(1, first.rank());
  std::vector<cpu::MergedRows<T>> merged(shards.size());
  SelectedRows mean;
  mean.height = shards.front().height;
  for (size_t s = 0; s < shards.size(); ++s) {
    merged[s].merge(shards[s], mean.height, width);
    for (size_t i = 0; i < merged[s].count(); ++i) mean.rows.push_back(merged[s].row(i));
  }
  std::sort(mean.rows.begin(), mean.rows.end());
  mean.rows.erase(std::unique(mean.rows.begin(), mean.rows.end()), mean.rows.end());
  Shape shape = first;
  shape.set(0, static_cast<int64_t>(mean.rows.size()));
  mean.value = Tensor(dtype_of<T>(), shape);
  const std::vector<T> zeros(static_cast<size_t>(width), T{});
  std::vector<const T*> arrays(shards.size());
  std::vector<size_t> next(shards.size(), 0);
  const T factor = T{1} / static_cast<T>(shards.size());
  T* to = mean.value.data<T>();
  for (const int64_t row : mean.rows) {
    for (size_t s = 0; s < shards.size(); ++s) {
      const bool has = next[s] < merged[s].count() && merged[s].row(next[s]) == row;
      arrays[s] = has ? merged[s].values() + next[s]++ * static_cast<size_t>(width) : zeros.data();
    }
    tree_sum<T>(arrays, to, static_cast<size_t>(width));
    for (int64_t k = 0; k < width; ++k) to[k] *= factor;
    to += width;
  }
  return mean;
}

}  // namespace

SelectedRows mean_of_rows(std::span<const SelectedRows> shards) {
  return shards.front().value.dtype() == DType::kFloat64 ? mean_as<double>(shards)
                                                         : mean_as<float>(shards);
}

}  // namespace fleet::fluid

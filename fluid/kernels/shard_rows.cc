#include "fluid/kernels/shard_rows.h"

#include <vector>

#include "base/shard_tree.h"
#include "fluid/core/row_sum.h"
#include "fluid/kernels/cpu/optimize/update.h"

namespace fleet::fluid {
namespace {

template <class T>
SelectedRows sum_as(std::span<const SelectedRows> shards) {
  const Shape& shape = shards.front().value.shape();
  const int64_t height = shards.front().height;
  std::vector<cpu::MergedRows<T>> merged(shards.size());
  std::vector<RowsView<T>> parts;
  for (size_t s = 0; s < shards.size(); ++s) {
    merged[s].merge(shards[s], height, shape.numel(1, shape.rank()));
    parts.push_back({merged[s].rows(), merged[s].values()});
  }
  return sum_of_parts<T>(parts, height, shape, tree_sum<T>);
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
  return is_double(shards) ? sum_as<double>(shards) : sum_as<float>(shards);
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

#include "strategies/parameter_server/client/merged_gradients.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/row_sum.h"
#include "fluid/kernels/cpu/optimize/update.h"

namespace fleet::strategies {
namespace {

template <class T>
void merge_as(const std::vector<Buffer>& gradients, bool by_sum) {
  T* out = reinterpret_cast<T*>(gradients.front().data());
  const size_t n = gradients.front().size() / sizeof(T);
  for (size_t k = 1; k < gradients.size(); ++k) {
    const T* in = reinterpret_cast<const T*>(gradients[k].data());
    for (size_t i = 0; i < n; ++i) out[i] += in[i];
  }
  if (by_sum) return;
  const T factor = T{1} / static_cast<T>(gradients.size());
  for (size_t i = 0; i < n; ++i) out[i] *= factor;
}

}  // namespace

Buffer merge_gradients(std::vector<Buffer> gradients, fluid::DType dtype, bool by_sum) {
  if (gradients.size() > 1) {
    if (dtype == fluid::DType::kFloat32) {
      merge_as<float>(gradients, by_sum);
    } else if (dtype == fluid::DType::kFloat64) {
      merge_as<double>(gradients, by_sum);
    } else {
      throw_error(ErrorCode::kDTypeMismatch,
                  {.what = "only float32 and float64 gradients are merged",
                   .where = "asynchronous worker",
                   .expected = "float32 or float64",
                   .got = std::string(fluid::dtype_name(dtype)),
                   .fix = "set communicator_max_merge_var_num to 1, and use one trainer thread"});
    }
  }
  return std::move(gradients.front());
}

namespace {

template <class T>
fluid::SelectedRows merge_rows_as(const std::vector<QueuedGradient>& gradients, bool by_sum) {
  const fluid::SelectedRows& first = *gradients.front().rows;
  const fluid::Shape& shape = first.value.shape();
  std::vector<fluid::cpu::MergedRows<T>> merged(gradients.size());
  std::vector<fluid::RowsView<T>> parts;
  for (size_t i = 0; i < gradients.size(); ++i) {
    merged[i].merge(*gradients[i].rows, first.height, shape.numel(1, shape.rank()));
    parts.push_back({merged[i].rows(), merged[i].values()});
  }
  const T factor = by_sum ? T{1} : T{1} / static_cast<T>(gradients.size());
  const auto add = [&](std::span<const T* const> arrays, T* out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      T sum = arrays[0][i];
      for (size_t k = 1; k < arrays.size(); ++k) sum += arrays[k][i];
      out[i] = sum * factor;
    }
  };
  return fluid::sum_of_parts<T>(parts, first.height, shape, add);
}

}  // namespace

fluid::SelectedRows merge_rows(const std::vector<QueuedGradient>& gradients, bool by_sum) {
  return gradients.front().rows->value.dtype() == fluid::DType::kFloat64
             ? merge_rows_as<double>(gradients, by_sum)
             : merge_rows_as<float>(gradients, by_sum);
}

}  // namespace fleet::strategies

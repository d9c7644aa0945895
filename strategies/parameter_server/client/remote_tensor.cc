#include "strategies/parameter_server/client/remote_tensor.h"

#include <algorithm>

#include "strategies/parameter_server/protocol/row_payload.h"

namespace fleet::strategies {

fluid::SelectedRows rows_of_part(const RemoteTensor& gradient, const RemotePart& part,
                                 const fluid::SelectedRows& rows) {
  if (gradient.growing) return rows;
  const uint64_t row_bytes =
      gradient.bytes() / static_cast<uint64_t>(std::max<int64_t>(1, gradient.shape[0]));
  if (row_bytes == 0) return rows;
  const auto first = static_cast<int64_t>(part.offset / row_bytes);
  const auto height = static_cast<int64_t>(part.bytes / row_bytes);
  return part.stride > 1 ? rows_of_stride(rows, part.stride, height)
                         : rows_between(rows, first, first + height);
}

fluid::Tensor& dense(fluid::Value& value) {
  auto* tensor = std::get_if<fluid::Tensor>(&value);
  return tensor != nullptr ? *tensor : value.emplace<fluid::Tensor>();
}

}  // namespace fleet::strategies

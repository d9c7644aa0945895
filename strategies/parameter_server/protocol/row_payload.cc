#include "strategies/parameter_server/protocol/row_payload.h"

#include <cstring>

namespace fleet::strategies {

Buffer row_payload(const fluid::SelectedRows& rows) {
  const size_t numbers = rows.rows.size() * sizeof(int64_t);
  const size_t values = rows.rows.empty() ? 0 : rows.value.bytes();
  Buffer bytes(numbers + values);
  if (numbers > 0) std::memcpy(bytes.data(), rows.rows.data(), numbers);
  if (values > 0) std::memcpy(bytes.data() + numbers, rows.value.raw(), values);
  return bytes;
}

fluid::SelectedRows rows_between(const fluid::SelectedRows& rows, int64_t begin, int64_t end) {
  fluid::SelectedRows part;
  part.height = end - begin;
  std::vector<size_t> from;
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    if (rows.rows[i] < begin || rows.rows[i] >= end) continue;
    part.rows.push_back(rows.rows[i] - begin);
    from.push_back(i);
  }
  fluid::Shape shape = rows.value.shape();
  shape.set(0, static_cast<int64_t>(from.size()));
  part.value = fluid::Tensor(rows.value.dtype(), shape);
  const size_t row_bytes = from.empty() ? 0 : part.value.bytes() / from.size();
  std::byte* to = part.value.raw();
  for (const size_t i : from) {
    std::memcpy(to, rows.value.raw() + i * row_bytes, row_bytes);
    to += row_bytes;
  }
  return part;
}

fluid::SelectedRows rows_of_stride(const fluid::SelectedRows& rows, int64_t stride,
                                   int64_t height) {
  fluid::SelectedRows part{.rows = rows.rows, .height = height, .value = rows.value};
  for (int64_t& row : part.rows) row /= stride;
  return part;
}

}  // namespace fleet::strategies

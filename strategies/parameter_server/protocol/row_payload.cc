#include "strategies/parameter_server/protocol/row_payload.h"

#include <cstring>

#include "base/numbers/half.h"

namespace fleet::strategies {
namespace {

void send_values(const fluid::Tensor& values, fluid::DType as, std::byte* to) {
  if (values.bytes() == 0) return;
  if (as == values.dtype()) {
    std::memcpy(to, values.raw(), values.bytes());
    return;
  }
  const auto convert = as == fluid::DType::kFloat16 ? &float16_of_float : &bfloat16_of_float;
  convert(values.data<float>(), reinterpret_cast<uint16_t*>(to),
          static_cast<size_t>(values.numel()));
}

}  // namespace

Buffer row_payload(const fluid::SelectedRows& rows, fluid::DType as) {
  const size_t numbers = rows.rows.size() * sizeof(int64_t);
  const size_t values =
      rows.rows.empty() ? 0 : static_cast<size_t>(rows.value.numel()) * fluid::dtype_size(as);
  Buffer bytes(numbers + values);
  if (numbers == 0) return bytes;
  std::memcpy(bytes.data(), rows.rows.data(), numbers);
  send_values(rows.value, as, bytes.data() + numbers);
  return bytes;
}

fluid::Tensor sent_values(const fluid::Tensor& values, fluid::DType as) {
  if (!values.initialized() || as == values.dtype()) return values;
  fluid::Tensor sent(as, values.shape());
  send_values(values, as, sent.raw());
  return sent;
}

void values_of_sent(const std::byte* sent, fluid::DType as, size_t count, float* values) {
  const auto convert = as == fluid::DType::kFloat16 ? &float_of_float16 : &float_of_bfloat16;
  convert(reinterpret_cast<const uint16_t*>(sent), values, count);
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

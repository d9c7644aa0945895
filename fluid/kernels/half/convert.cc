#include "fluid/kernels/half/convert.h"

#include "base/numbers/half.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {
namespace {

void convert_on_host(const Tensor& from, Tensor& to) {
  const auto n = static_cast<size_t>(from.numel());
  const bool widens = is_half(from.dtype());
  const bool brain = (widens ? from : to).dtype() == DType::kBFloat16;
  if (widens) {
    const auto* in = reinterpret_cast<const uint16_t*>(from.raw());
    (brain ? float_of_bfloat16 : float_of_float16)(in, to.data<float>(), n);
  } else {
    auto* out = reinterpret_cast<uint16_t*>(to.raw());
    (brain ? bfloat16_of_float : float16_of_float)(from.data<float>(), out, n);
  }
}

}  // namespace

void convert_half(const Tensor& from, Tensor& to, void* stream) {
  if (from.numel() == 0) return;
  if (from.place().is_cpu()) return convert_on_host(from, to);
  if (stream != nullptr) return convert_half_on_device(from, to, stream);
  // An emulated device.
  const Tensor given = from.copy_to(CPUPlace());
  Tensor made(to.dtype(), to.shape());
  convert_on_host(given, made);
  to.copy_from(made);
}

}  // namespace fleet::fluid

#include "fluid/kernels/half/convert.h"

#include "base/numbers/half.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {
namespace {

void convert_on_host(const Tensor& from, Tensor& to, const Tiles& tiles) {
  const bool widens = is_half(from.dtype());
  const bool brain = (widens ? from : to).dtype() == DType::kBFloat16;
  const auto in_tiles = [&](auto convert, const auto* in, auto* out) {
    tiles.split(from.numel(), 1, [=](int64_t begin, int64_t end) {
      convert(in + begin, out + begin, static_cast<size_t>(end - begin));
    });
  };
  if (widens) {
    const auto* in = reinterpret_cast<const uint16_t*>(from.raw());
    in_tiles(brain ? float_of_bfloat16 : float_of_float16, in, to.data<float>());
  } else {
    auto* out = reinterpret_cast<uint16_t*>(to.raw());
    in_tiles(brain ? bfloat16_of_float : float16_of_float, from.data<float>(), out);
  }
}

}  // namespace

void convert_half(const Tensor& from, Tensor& to, void* stream, const Tiles& tiles) {
  if (from.numel() == 0) return;
  if (from.place().is_cpu()) return convert_on_host(from, to, tiles);
  if (stream != nullptr) return convert_half_on_device(from, to, stream);
  // An emulated device.
  const Tensor given = from.copy_to(CPUPlace());
  Tensor made(to.dtype(), to.shape());
  convert_on_host(given, made, tiles);
  to.copy_from(made);
}

}  // namespace fleet::fluid

#include "fluid/kernels/image_layout.h"

#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid {
namespace {

// f(plain image's offset, blocked image's offset) for every element: the points of a block's
// planes, one after the other.
template <int64_t Block, class F>
void each_point(const Shape& shape, F f) {
  const int64_t points = shape.numel(2, 4);
  const int64_t blocks = shape[0] * shape[1] / Block;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * Block * points;
    for (int64_t i = 0; i < points; ++i) {
      for (int64_t c = 0; c < Block; ++c) f(begin + c * points + i, begin + i * Block + c);
    }
  }
}

template <int64_t Block>
void reorder(const Tensor& from, Tensor& to) {
  const float* in = from.data<float>();
  float* out = to.data<float>();
  if (from.layout() == Layout::kBlocked) {
    each_point<Block>(from.shape(), [=](int64_t plain, int64_t at) { out[plain] = in[at]; });
  } else {
    each_point<Block>(from.shape(), [=](int64_t plain, int64_t at) { out[at] = in[plain]; });
  }
}

}  // namespace

int64_t image_block() {
  return cpu::avx512_loops() != nullptr ? 16 : 8;
}

bool can_be_blocked(DType dtype, const Shape& shape) {
  return dtype == DType::kFloat32 && shape.rank() == 4 && shape[1] > 0 &&
         shape[1] % image_block() == 0;
}

void reorder_image(const Tensor& from, Tensor& to) {
  to.reset(from.dtype(), from.shape());
  if (image_block() == 16) {
    reorder<16>(from, to);
  } else {
    reorder<8>(from, to);
  }
  if (from.layout() == Layout::kPlain) to.set_layout(Layout::kBlocked);
}

}  // namespace fleet::fluid

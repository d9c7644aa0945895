#include <algorithm>

#include "fluid/kernels/cpu/nn/conv.h"

namespace fleet::fluid::cpu {
namespace {

// Strides of an image batch, in elements.
struct ImageStrides {
  int64_t batch = 0;
  int64_t channel = 0;
  int64_t row = 0;
  int64_t column = 0;
};

ImageStrides strides_of(int64_t channels, int64_t height, int64_t width, bool channels_last) {
  if (channels_last) return {height * width * channels, 1, width * channels, channels};
  return {channels * height * width, height * width, width, 1};
}

// Outputs [begin, end) of one dimension whose window position k lies inside the image.
struct OutputRange {
  int64_t begin = 0;
  int64_t end = 0;
};

OutputRange inside(const WindowAxis& axis, int64_t k) {
  const int64_t shift = k * axis.dilation - axis.pad_before;  // in = out * stride + shift
  const int64_t begin = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
  const int64_t room = axis.in - 1 - shift;
  const int64_t end = room < 0 ? 0 : std::min(axis.out, room / axis.stride + 1);
  return {std::min(begin, end), end};
}

template <class T>
class ReferenceConv final : public Conv<T> {
 public:
  ReferenceConv(ConvPart part, const ConvShape& shape)
      : part_(part),
        s_(shape),
        src_(strides_of(shape.in, shape.window[0].in, shape.window[1].in, shape.channels_last)),
        dst_(strides_of(shape.out, shape.window[0].out, shape.window[1].out, shape.channels_last)) {
  }

  // By what each element of the result belongs to: it is the sum of its products in their order.
  void run(T* src, T* filter, T* dst, Scratch&, const Tiles& tiles) override {
    const int64_t in = s_.in / s_.groups;
    const int64_t area = s_.window[0].kernel * s_.window[1].kernel;
    const int64_t products = s_.window[0].out * s_.window[1].out * in * area;
    if (part_ == ConvPart::kBackwardFilter) {
      return tiles.split(s_.out, s_.batch * products, [=, this](int64_t begin, int64_t end) {
        std::fill(filter + begin * in * area, filter + end * in * area, T{});
        for (int64_t n = 0; n < s_.batch; ++n) planes(src, filter, dst, n, begin, end);
      });
    }
    tiles.split(s_.batch, s_.out * products, [=, this](int64_t begin, int64_t end) {
      T* result = part_ == ConvPart::kForward ? dst : src;
      const int64_t image = part_ == ConvPart::kForward ? dst_.batch : src_.batch;
      std::fill(result + begin * image, result + end * image, T{});
      for (int64_t n = begin; n < end; ++n) planes(src, filter, dst, n, 0, s_.out);
    });
  }

 private:
  // Channels [begin, end) of dst in one image, with all of src that they see.
  void planes(T* src, T* filter, T* dst, int64_t n, int64_t begin, int64_t end) const {
    const int64_t in = s_.in / s_.groups;
    const int64_t out = s_.out / s_.groups;
    const int64_t area = s_.window[0].kernel * s_.window[1].kernel;
    for (int64_t o = begin; o < end; ++o) {
      const int64_t group = o / out;
      T* to = dst + n * dst_.batch + o * dst_.channel;
      for (int64_t i = 0; i < in; ++i) {
        T* from = src + n * src_.batch + (group * in + i) * src_.channel;
        plane(from, filter + (o * in + i) * area, to);
      }
    }
  }

  // One channel of each side.
  void plane(T* src, T* filter, T* dst) const {
    const WindowAxis& high = s_.window[0];
    const WindowAxis& wide = s_.window[1];
    for (int64_t ky = 0; ky < high.kernel; ++ky) {
      const OutputRange rows = inside(high, ky);
      for (int64_t kx = 0; kx < wide.kernel; ++kx) {
        const OutputRange columns = inside(wide, kx);
        T* weight = filter + ky * wide.kernel + kx;
        for (int64_t y = rows.begin; y < rows.end; ++y) {
          T* from =
              src + (y * high.stride + ky * high.dilation - high.pad_before) * src_.row +
              (columns.begin * wide.stride + kx * wide.dilation - wide.pad_before) * src_.column;
          T* to = dst + y * dst_.row + columns.begin * dst_.column;
          row(from, weight, to, columns.end - columns.begin);
        }
      }
    }
  }

  void row(T* from, T* weight, T* to, int64_t count) const {
    const int64_t step = s_.window[1].stride * src_.column;
    const int64_t next = dst_.column;
    if (part_ == ConvPart::kForward) {
      for (int64_t x = 0; x < count; ++x) to[x * next] += from[x * step] * *weight;
    } else if (part_ == ConvPart::kBackwardData) {
      for (int64_t x = 0; x < count; ++x) from[x * step] += to[x * next] * *weight;
    } else {
      T sum{};
      for (int64_t x = 0; x < count; ++x) sum += from[x * step] * to[x * next];
      *weight += sum;
    }
  }

  ConvPart part_;
  ConvShape s_;
  ImageStrides src_;
  ImageStrides dst_;
};

}  // namespace

template <class T>
std::unique_ptr<Conv<T>> reference_conv(ConvPart part, const ConvShape& shape) {
  return std::make_unique<ReferenceConv<T>>(part, shape);
}

template std::unique_ptr<Conv<float>> reference_conv<float>(ConvPart, const ConvShape&);
template std::unique_ptr<Conv<double>> reference_conv<double>(ConvPart, const ConvShape&);

}  // namespace fleet::fluid::cpu

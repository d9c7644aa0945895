// Convolutions of many images at once: a vector holds one number of as many images as it has
// lanes, so that no number of channels or positions leaves a part of it empty.
#include <algorithm>
#include <vector>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/nn/conv.h"

namespace fleet::fluid::cpu {
namespace {

// Planes in lanes, which may lie in frames of zeros.
struct Planes {
  int64_t count = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t above = 0;
  int64_t before = 0;
  int64_t frame_height = 0;
  int64_t frame_width = 0;

  bool framed() const { return frame_height != height || frame_width != width; }
  int64_t numbers() const { return count * height * width; }
  int64_t frame_numbers() const { return count * frame_height * frame_width; }
};

Planes plain(int64_t count, int64_t height, int64_t width) {
  return {.count = count,
          .height = height,
          .width = width,
          .frame_height = height,
          .frame_width = width};
}

int64_t reach(const WindowAxis& axis) {
  return axis.extent() - 1;
}

class LaneConv final : public Conv<float> {
 public:
  LaneConv(ConvPart part, const ConvShape& shape, const IsaLoops& isa)
      : isa_(isa),
        forward_(part == ConvPart::kForward),
        gradient_(part == ConvPart::kBackwardFilter),
        batch_(shape.batch),
        area_(shape.window[0].kernel * shape.window[1].kernel),
        src_(plain(shape.in, shape.window[0].in, shape.window[1].in)),
        dst_(plain(shape.out, shape.window[0].out, shape.window[1].out)) {
    if (gradient_) {
      set_gradient(shape.window[0], shape.window[1]);
    } else {
      set_product(shape.window[0], shape.window[1]);
    }
  }

  void run(float* src, float* filter, float* dst, Scratch& scratch) override {
    if (gradient_) return find_gradient(src, dst, filter, scratch);
    if (forward_) return multiply(src, filter, dst, scratch);
    multiply(dst, filter, src, scratch);
  }

 private:
  void set_product(const WindowAxis& high, const WindowAxis& wide) {
    Planes& from = forward_ ? src_ : dst_;
    const Planes& to = forward_ ? dst_ : src_;
    product_.high = {high.kernel, high.dilation, to.height};
    product_.wide = {wide.kernel, wide.dilation, to.width};
    product_.above = forward_ ? high.pad_before : reach(high) - high.pad_before;
    from.before = forward_ ? wide.pad_before : reach(wide) - wide.pad_before;
    from.frame_width = to.width + reach(wide);
    product_.planes = from.count;
    product_.height = from.height;
    product_.width = from.frame_width;
    product_.begin = from.before;
    product_.end = from.before + from.width;
  }

  void set_gradient(const WindowAxis& high, const WindowAxis& wide) {
    src_.above = high.pad_before;
    src_.before = wide.pad_before;
    src_.frame_height = dst_.height + reach(high);
    src_.frame_width = dst_.width + reach(wide);
    for (int64_t plane = 0; plane < src_.count; ++plane) {
      for (int64_t y = 0; y < high.kernel; ++y) {
        for (int64_t x = 0; x < wide.kernel; ++x) {
          tap_offsets_.push_back((plane * src_.frame_height + y * high.dilation) *
                                     src_.frame_width +
                                 x * wide.dilation);
        }
      }
    }
  }

  static float* take(Scratch& scratch, int64_t elements) {
    return reinterpret_cast<float*>(scratch.get(static_cast<size_t>(elements) * sizeof(float)));
  }

  // Images to lanes. `spare` has room for them without their frame.
  void load(const float* images, int64_t count, const Planes& planes, float* spare,
            float* to) const {
    const int64_t numbers = planes.numbers();
    float* turned = planes.framed() ? spare : to;
    if (count < isa_.lanes) std::fill_n(turned, numbers * isa_.lanes, 0.0f);
    transpose(images, count, numbers, numbers, turned, isa_.lanes);
    if (!planes.framed()) return;
    std::fill_n(to, planes.frame_numbers() * isa_.lanes, 0.0f);
    const int64_t line = planes.width * isa_.lanes;
    for (int64_t plane = 0; plane < planes.count; ++plane) {
      for (int64_t y = 0; y < planes.height; ++y, turned += line) {
        const int64_t row = plane * planes.frame_height + planes.above + y;
        std::copy_n(turned, line, to + (row * planes.frame_width + planes.before) * isa_.lanes);
      }
    }
  }

  int64_t blocks() const {
    const int64_t rows = (forward_ ? dst_ : src_).count;
    return (rows + isa_.product_rows - 1) / isa_.product_rows;
  }
  // The first row of a block: blocks are of much the same size.
  int64_t block_begin(int64_t block) const {
    return block * (forward_ ? dst_ : src_).count / blocks();
  }

  // Block by block [plane, tap, row]; backward the taps are turned around.
  void pack(const float* filter, float* packed) const {
    const int64_t row_step = forward_ ? src_.count * area_ : area_;
    const int64_t plane_step = forward_ ? area_ : src_.count * area_;
    for (int64_t block = 0; block < blocks(); ++block) {
      for (int64_t plane = 0; plane < product_.planes; ++plane) {
        for (int64_t tap = 0; tap < area_; ++tap) {
          const float* from = filter + plane * plane_step + (forward_ ? tap : area_ - 1 - tap);
          for (int64_t row = block_begin(block); row < block_begin(block + 1); ++row) {
            *packed++ = from[row * row_step];
          }
        }
      }
    }
  }

  void multiply(const float* from, const float* filter, float* to, Scratch& scratch) const {
    const Planes& in = forward_ ? src_ : dst_;
    const Planes& out = forward_ ? dst_ : src_;
    const int64_t taps = in.count * area_;
    float* packed = take(scratch, out.count * taps + isa_.lanes * (in.frame_numbers() +
                                                                   in.numbers() + out.numbers()));
    float* spare = packed + out.count * taps;
    float* in_lanes = spare + isa_.lanes * in.numbers();
    float* out_lanes = in_lanes + isa_.lanes * in.frame_numbers();
    pack(filter, packed);
    LaneProduct product = product_;
    product.in = in_lanes;
    for (int64_t first = 0; first < batch_; first += isa_.lanes) {
      const int64_t images = std::min(isa_.lanes, batch_ - first);
      load(from + first * in.numbers(), images, in, spare, in_lanes);
      for (int64_t block = 0; block < blocks(); ++block) {
        const int64_t row = block_begin(block);
        product.filter = packed + row * taps;
        product.rows = block_begin(block + 1) - row;
        product.out = out_lanes + row * out.height * out.width * isa_.lanes;
        isa_.lane_product(product);
      }
      transpose(out_lanes, out.numbers(), images, isa_.lanes, to + first * out.numbers(),
                out.numbers());
    }
  }

  void find_gradient(const float* src, const float* dst, float* filter, Scratch& scratch) const {
    const int64_t lanes = isa_.lanes;
    const auto taps = static_cast<int64_t>(tap_offsets_.size());
    float* sums = take(scratch, lanes * (dst_.count * taps + src_.numbers() + src_.frame_numbers() +
                                         dst_.numbers()));
    float* spare = sums + lanes * dst_.count * taps;
    float* src_lanes = spare + lanes * src_.numbers();
    float* dst_lanes = src_lanes + lanes * src_.frame_numbers();
    std::fill_n(sums, lanes * dst_.count * taps, 0.0f);
    for (int64_t first = 0; first < batch_; first += lanes) {
      const int64_t images = std::min(lanes, batch_ - first);
      load(src + first * src_.numbers(), images, src_, spare, src_lanes);
      load(dst + first * dst_.numbers(), images, dst_, spare, dst_lanes);
      isa_.lane_gradient({.src = src_lanes,
                          .src_width = src_.frame_width,
                          .tap_offsets = tap_offsets_.data(),
                          .taps = taps,
                          .dst = dst_lanes,
                          .rows = dst_.count,
                          .height = dst_.height,
                          .width = dst_.width,
                          .sums = sums});
    }
    add_lanes(sums, dst_.count * taps, filter);
  }

  // The lanes of each of n numbers, summed as a tree.
  void add_lanes(const float* sums, int64_t n, float* out) const {
    constexpr int64_t kChunk = 256;
    std::vector<float> turned(static_cast<size_t>(kChunk * isa_.lanes));
    for (int64_t first = 0; first < n; first += kChunk) {
      const int64_t numbers = std::min(kChunk, n - first);
      transpose(sums + first * isa_.lanes, numbers, isa_.lanes, isa_.lanes, turned.data(), kChunk);
      for (int64_t width = isa_.lanes / 2; width > 0; width /= 2) {
        for (int64_t i = 0; i < width * kChunk; ++i) {
          turned[static_cast<size_t>(i)] += turned[static_cast<size_t>(width * kChunk + i)];
        }
      }
      std::copy_n(turned.data(), numbers, out + first);
    }
  }

  const IsaLoops& isa_;
  bool forward_;
  bool gradient_;
  int64_t batch_;
  int64_t area_;  // of a window
  Planes src_;
  Planes dst_;
  LaneProduct product_;
  std::vector<int64_t> tap_offsets_;
};

// Fewer sums than twice as many wait for each other.
constexpr int64_t kFewestRows = 4;

// Frames cannot cut images.
bool can_be_framed(const WindowAxis& axis) {
  return axis.stride == 1 && std::max(axis.pad_before, axis.pad_after) <= reach(axis);
}

}  // namespace

std::unique_ptr<Conv<float>> lane_conv(ConvPart part, const ConvShape& shape, const IsaLoops& isa) {
  if (!can_be_framed(shape.window[0]) || !can_be_framed(shape.window[1])) return nullptr;
  const bool few_rows = (part == ConvPart::kForward && shape.out < kFewestRows) ||
                        (part == ConvPart::kBackwardData && shape.in < kFewestRows);
  if (few_rows) return nullptr;
  const int64_t groups = (shape.batch + isa.lanes - 1) / isa.lanes;
  if (!wastes_blocks(shape) || 4 * shape.batch < 3 * groups * isa.lanes) return nullptr;
  return std::make_unique<LaneConv>(part, shape, isa);
}

}  // namespace fleet::fluid::cpu

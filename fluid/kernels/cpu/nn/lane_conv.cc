// Convolutions of many images at once: a vector holds one number of as many images as it has
// lanes, so that no number of channels or positions leaves a part of it empty.
#include <algorithm>
#include <vector>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/nn/conv.h"
#include "fluid/kernels/cpu/nn/conv_parts.h"
#include "fluid/kernels/cpu/tile_scratch.h"

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
  int64_t area() const { return height * width; }
  int64_t frame_area() const { return frame_height * frame_width; }
  int64_t numbers() const { return count * area(); }
  int64_t frame_numbers() const { return count * frame_area(); }
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

  void run(float* src, float* filter, float* dst, Scratch& scratch, const Tiles& tiles) override {
    if (gradient_) return find_gradient(src, dst, filter, scratch, tiles);
    if (forward_) return multiply(src, filter, dst, scratch, tiles);
    multiply(dst, filter, src, scratch, tiles);
  }

 private:
  // Numbers of src in lanes at the same time, unless one group has more.
  static constexpr int64_t kLoaded = int64_t{1} << 16;

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

  int64_t groups() const { return pieces_of(batch_, isa_.lanes); }
  int64_t images_of(int64_t group) const {
    return std::min(isa_.lanes, batch_ - group * isa_.lanes);
  }

  // Planes [begin, end) of a group of images to lanes. `spare` has room for them without their
  // frames.
  void load(const float* images, int64_t group, const Planes& planes, int64_t begin, int64_t end,
            float* spare, float* to) const {
    float* turned = planes.framed() ? spare : to;
    const int64_t count = images_of(group);
    const int64_t numbers = (end - begin) * planes.area();
    if (count < isa_.lanes) std::fill_n(turned, numbers * isa_.lanes, 0.0f);
    transpose(images + group * isa_.lanes * planes.numbers() + begin * planes.area(), count,
              numbers, planes.numbers(), turned, isa_.lanes);
    if (!planes.framed()) return;
    std::fill_n(to, (end - begin) * planes.frame_area() * isa_.lanes, 0.0f);
    const int64_t line = planes.width * isa_.lanes;
    for (int64_t plane = 0; plane < end - begin; ++plane) {
      for (int64_t y = 0; y < planes.height; ++y, turned += line) {
        const int64_t row = plane * planes.frame_height + planes.above + y;
        std::copy_n(turned, line, to + (row * planes.frame_width + planes.before) * isa_.lanes);
      }
    }
  }

  int64_t blocks() const {
    const int64_t rows = (forward_ ? dst_ : src_).count;
    return pieces_of(rows, isa_.product_rows);
  }
  // The first row of a block: blocks are of much the same size.
  int64_t block_begin(int64_t block) const {
    return block * (forward_ ? dst_ : src_).count / blocks();
  }

  // A block as [plane, tap, row]; backward the taps are turned around.
  void pack(const float* filter, int64_t block, float* packed) const {
    const int64_t row_step = forward_ ? src_.count * area_ : area_;
    const int64_t plane_step = forward_ ? area_ : src_.count * area_;
    for (int64_t plane = 0; plane < product_.planes; ++plane) {
      for (int64_t tap = 0; tap < area_; ++tap) {
        const float* from = filter + plane * plane_step + (forward_ ? tap : area_ - 1 - tap);
        for (int64_t row = block_begin(block); row < block_begin(block + 1); ++row) {
          *packed++ = from[row * row_step];
        }
      }
    }
  }

  void multiply(const float* from, const float* filter, float* to, Scratch& scratch,
                const Tiles& tiles) const {
    const Planes& out = forward_ ? dst_ : src_;
    const int64_t taps = product_.planes * area_;
    float* packed = take(scratch, out.count * taps);
    tiles.split(blocks(), 2 * isa_.product_rows * taps, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        pack(filter, block, packed + block_begin(block) * taps);
      }
    });
    tiles.split(groups(), products_cost(taps * out.numbers()), [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) multiply_group(from, packed, group, to);
    });
  }

  void multiply_group(const float* from, const float* packed, int64_t group, float* to) const {
    const Planes& in = forward_ ? src_ : dst_;
    const Planes& out = forward_ ? dst_ : src_;
    float* in_lanes = tile_scratch<float>(
        isa_.lanes * (in.frame_numbers() + std::max(in.numbers(), isa_.product_rows * out.area())));
    float* spare = in_lanes + isa_.lanes * in.frame_numbers();
    load(from, group, in, 0, in.count, spare, in_lanes);
    LaneProduct product = product_;
    product.in = in_lanes;
    product.out = spare;
    to += group * isa_.lanes * out.numbers();
    for (int64_t block = 0; block < blocks(); ++block) {
      const int64_t row = block_begin(block);
      product.filter = packed + row * product.planes * area_;
      product.rows = block_begin(block + 1) - row;
      isa_.lane_product(product);
      transpose(product.out, product.rows * out.area(), images_of(group), isa_.lanes,
                to + row * out.area(), out.numbers());
    }
  }

  // By rows of the result: each sum has its order.
  void find_gradient(const float* src, const float* dst, float* filter, Scratch& scratch,
                     const Tiles& tiles) const {
    const int64_t numbers = dst_.count * taps();
    const int64_t plane = isa_.lanes * src_.frame_area();
    const int64_t at_once = std::clamp<int64_t>(kLoaded / (src_.count * plane), 1, groups());
    float* src_lanes = take(scratch, at_once * src_.count * plane + isa_.lanes * numbers);
    float* sums = src_lanes + at_once * src_.count * plane;
    const int64_t step = isa_.gradient_rows;
    for (int64_t first = 0; first < groups(); first += at_once) {
      const int64_t last = std::min(groups(), first + at_once);
      tiles.split((last - first) * src_.count, 2 * plane, [&](int64_t begin, int64_t end) {
        float* spare = tile_scratch<float>(isa_.lanes * src_.area());
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i % src_.count;
          load(src, first + i / src_.count, src_, at, at + 1, spare, src_lanes + i * plane);
        }
      });
      const int64_t cost = (last - first) * products_cost(step * taps() * dst_.area());
      tiles.ranges(dst_.count, Tiles::items(cost) * step, [&](int64_t begin, int64_t end) {
        float* row_sums = sums + isa_.lanes * begin * taps();
        if (first == 0) std::fill_n(row_sums, isa_.lanes * (end - begin) * taps(), 0.0f);
        for (int64_t group = first; group < last; ++group) {
          add_products(src_lanes + (group - first) * src_.count * plane, dst, group, begin, end,
                       row_sums);
        }
      });
    }
    add_lanes(sums, numbers, filter, tiles);
  }

  // Rows [begin, end), of one group.
  void add_products(const float* src_lanes, const float* dst, int64_t group, int64_t begin,
                    int64_t end, float* sums) const {
    float* dst_lanes = tile_scratch<float>(isa_.lanes * (end - begin) * dst_.area());
    load(dst, group, dst_, begin, end, nullptr, dst_lanes);
    isa_.lane_gradient({.src = src_lanes,
                        .src_width = src_.frame_width,
                        .tap_offsets = tap_offsets_.data(),
                        .taps = taps(),
                        .dst = dst_lanes,
                        .rows = end - begin,
                        .height = dst_.height,
                        .width = dst_.width,
                        .sums = sums});
  }
  int64_t taps() const { return static_cast<int64_t>(tap_offsets_.size()); }

  // Of so many products in each lane.
  int64_t products_cost(int64_t products) const { return isa_.lanes * products / kProducts; }

  // The lanes of each of n numbers, summed as a tree.
  void add_lanes(const float* sums, int64_t n, float* out, const Tiles& tiles) const {
    constexpr int64_t kChunk = 256;
    tiles.split(pieces_of(n, kChunk), kChunk * isa_.lanes, [&](int64_t begin, int64_t end) {
      float* turned = tile_scratch<float>(kChunk * isa_.lanes);
      for (int64_t first = begin * kChunk; first < std::min(n, end * kChunk); first += kChunk) {
        const int64_t numbers = std::min(kChunk, n - first);
        transpose(sums + first * isa_.lanes, numbers, isa_.lanes, isa_.lanes, turned, kChunk);
        for (int64_t width = isa_.lanes / 2; width > 0; width /= 2) {
          for (int64_t i = 0; i < width * kChunk; ++i) turned[i] += turned[width * kChunk + i];
        }
        std::copy_n(turned, numbers, out + first);
      }
    });
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
  const int64_t groups = pieces_of(shape.batch, isa.lanes);
  if (!wastes_blocks(shape) || 4 * shape.batch < 3 * groups * isa.lanes) return nullptr;
  return std::make_unique<LaneConv>(part, shape, isa);
}

}  // namespace fleet::fluid::cpu

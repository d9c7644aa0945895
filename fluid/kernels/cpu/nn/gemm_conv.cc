// Convolutions as products of matrices, image by image: what each window sees is a column.
#include <algorithm>
#include <immintrin.h>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/nn/conv.h"
#include "fluid/kernels/cpu/nn/conv_parts.h"
#include "fluid/kernels/cpu/tile_scratch.h"

namespace fleet::fluid::cpu {
namespace {

// Outputs [begin, end) of one row whose windows' element `offset` (before padding) is inside.
struct Inside {
  int64_t begin;
  int64_t end;
  int64_t first;  // element that output `begin` sees

  Inside(const WindowAxis& axis, int64_t tap) {
    const int64_t offset = tap * axis.dilation - axis.pad_before;
    begin = offset >= 0 ? 0 : (-offset + axis.stride - 1) / axis.stride;
    end = offset >= axis.in ? 0 : (axis.in - 1 - offset) / axis.stride + 1;
    begin = std::min(begin, axis.out);
    end = std::clamp(end, begin, axis.out);
    first = begin * axis.stride + offset;
  }
};

// Rows of images are short: a call, or a loop that looks at its operands first, would be most of
// the work.
void copy_run(const float* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_loadu_ps(from + i));
  for (; i < n; ++i) to[i] = from[i];
}

void add_run(const float* from, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_add_ps(_mm256_loadu_ps(to + i), _mm256_loadu_ps(from + i)));
  }
  for (; i < n; ++i) to[i] += from[i];
}

class GemmConv final : public Conv<float> {
 public:
  GemmConv(ConvPart part, const ConvShape& shape)
      : part_(part),
        s_(shape),
        lines_(shape.in * shape.window[0].kernel),
        taps_(lines_ * shape.window[1].kernel),
        positions_(shape.window[0].out * shape.window[1].out),
        image_(shape.in * shape.window[0].in * shape.window[1].in),
        together_(part == ConvPart::kBackwardFilter
                      ? std::clamp<int64_t>(kLongSum / positions_, 1, shape.batch)
                      : 1) {}

  void run(float* src, float* filter, float* dst, Scratch& scratch, const Tiles& tiles) override {
    if (part_ == ConvPart::kForward) return forward(src, filter, dst, tiles);
    if (part_ == ConvPart::kBackwardData) return backward_data(src, filter, dst, tiles);
    backward_filter(src, filter, dst, scratch, tiles);
  }

 private:
  // Calls f(image, columns) for each, `columns` being memory for them.
  template <class F>
  void each_image(const Tiles& tiles, const F& f) const {
    tiles.split(s_.batch, image_cost(), [&](int64_t begin, int64_t end) {
      float* columns = tile_scratch<float>(taps_ * positions_);
      for (int64_t i = begin; i < end; ++i) f(i, columns);
    });
  }

  // The columns and the products.
  int64_t image_cost() const { return taps_ * positions_ * (kProducts + s_.out) / kProducts; }

  void forward(const float* src, const float* filter, float* dst, const Tiles& tiles) const {
    each_image(tiles, [&](int64_t i, float* columns) {
      to_columns(src + i * image_, columns, positions_, 0, lines_);
      isa_loops().gemm_f32({.m = s_.out,
                            .n = positions_,
                            .k = taps_,
                            .a = filter,
                            .lda = taps_,
                            .b = columns,
                            .ldb = positions_,
                            .c = dst + i * s_.out * positions_,
                            .ldc = positions_});
    });
  }

  void backward_data(float* src, const float* filter, const float* dst, const Tiles& tiles) const {
    each_image(tiles, [&](int64_t i, float* columns) {
      isa_loops().gemm_f32({.m = taps_,
                            .n = positions_,
                            .k = s_.out,
                            .a = filter,
                            .lda = taps_,
                            .transpose_a = true,
                            .b = dst + i * s_.out * positions_,
                            .ldb = positions_,
                            .c = columns,
                            .ldc = positions_});
      add_columns(columns, src + i * image_);
    });
  }

  // The transposed gradient [taps, out], summed over so many images at once. By taps: each sum has
  // its order.
  void backward_filter(const float* src, float* filter, const float* dst, Scratch& scratch,
                       const Tiles& tiles) const {
    const int64_t step = pieces_of(kRows, s_.window[1].kernel);
    const int64_t numbers = positions_ * s_.out;
    const int64_t at_once =
        std::clamp<int64_t>(kTurned / numbers / together_, 1, pieces_of(s_.batch, together_)) *
        together_;
    float* sum = reinterpret_cast<float*>(
        scratch.get(static_cast<size_t>(taps_ * s_.out + at_once * numbers) * sizeof(float)));
    float* turned = sum + taps_ * s_.out;
    std::fill_n(sum, taps_ * s_.out, 0.0f);
    for (int64_t first = 0; first < s_.batch; first += at_once) {
      const int64_t last = std::min(s_.batch, first + at_once);
      tiles.split(last - first, 2 * numbers, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          transpose(dst + (first + i) * numbers, s_.out, positions_, turned + i * numbers);
        }
      });
      const int64_t cost = (last - first) * image_cost() / lines_ * step;
      tiles.ranges(lines_, Tiles::items(cost) * step, [&](int64_t begin, int64_t end) {
        for (int64_t i = first; i < last; i += together_) {
          add_products(src + i * image_, turned + (i - first) * numbers,
                       std::min(together_, last - i), begin, end, sum);
        }
      });
    }
    transpose(sum, taps_, s_.out, filter);
  }

  // Lines [begin, end) of taps.
  void add_products(const float* src, const float* turned, int64_t images, int64_t begin,
                    int64_t end, float* sum) const {
    const int64_t rows = (end - begin) * s_.window[1].kernel;
    const int64_t width = together_ * positions_;
    float* columns = tile_scratch<float>(rows * (width + s_.out));
    float* part = columns + rows * width;
    for (int64_t i = 0; i < images; ++i) {
      to_columns(src + i * image_, columns + i * positions_, width, begin, end);
    }
    isa_loops().gemm_f32({.m = rows,
                          .n = s_.out,
                          .k = images * positions_,
                          .a = columns,
                          .lda = width,
                          .b = turned,
                          .ldb = s_.out,
                          .c = part,
                          .ldc = s_.out});
    sum += begin * s_.window[1].kernel * s_.out;
    for (int64_t i = 0; i < rows * s_.out; ++i) sum[i] += part[i];
  }

  // f(row of the columns, plane, row and column taps) for each in lines [begin, end): a line is a
  // row of taps.
  template <class F>
  void each_tap(int64_t begin, int64_t end, F f) const {
    const int64_t high = s_.window[0].kernel;
    const int64_t wide = s_.window[1].kernel;
    int64_t plane = begin / high;
    int64_t y = begin % high;
    for (int64_t line = begin; line < end; ++line) {
      for (int64_t x = 0; x < wide; ++x) f(line * wide + x, plane, y, x);
      if (++y < high) continue;
      y = 0;
      ++plane;
    }
  }

  // Lines [begin, end) of taps.
  void to_columns(const float* image, float* columns, int64_t stride, int64_t begin,
                  int64_t end) const {
    const WindowAxis& high = s_.window[0];
    const WindowAxis& wide = s_.window[1];
    const int64_t first = begin * wide.kernel;
    each_tap(begin, end, [&](int64_t row, int64_t plane, int64_t y, int64_t x) {
      const Inside rows(high, y);
      const Inside inside(wide, x);
      float* to = columns + (row - first) * stride;
      const float* from = image + (plane * high.in + rows.first) * wide.in + inside.first;
      std::fill_n(to, rows.begin * wide.out, 0.0f);
      std::fill(to + rows.end * wide.out, to + high.out * wide.out, 0.0f);
      for (int64_t oy = rows.begin; oy < rows.end; ++oy, from += high.stride * wide.in) {
        float* line = to + oy * wide.out;
        for (int64_t ox = 0; ox < inside.begin; ++ox) line[ox] = 0.0f;
        if (wide.stride == 1) {
          copy_run(from, inside.end - inside.begin, line + inside.begin);
        } else {
          for (int64_t ox = inside.begin; ox < inside.end; ++ox) {
            line[ox] = from[(ox - inside.begin) * wide.stride];
          }
        }
        for (int64_t ox = inside.end; ox < wide.out; ++ox) line[ox] = 0.0f;
      }
    });
  }

  void add_columns(const float* columns, float* image) const {
    const WindowAxis& high = s_.window[0];
    const WindowAxis& wide = s_.window[1];
    std::fill_n(image, image_, 0.0f);
    each_tap(0, lines_, [&](int64_t row, int64_t plane, int64_t y, int64_t x) {
      const Inside rows(high, y);
      const Inside inside(wide, x);
      float* to = image + (plane * high.in + rows.first) * wide.in + inside.first;
      for (int64_t oy = rows.begin; oy < rows.end; ++oy, to += high.stride * wide.in) {
        const float* line = columns + row * positions_ + oy * wide.out + inside.begin;
        const int64_t n = inside.end - inside.begin;
        if (wide.stride == 1) {
          add_run(line, n, to);
        } else {
          for (int64_t i = 0; i < n; ++i) to[i * wide.stride] += line[i];
        }
      }
    });
  }

  // Of a product for the filter's gradient, about.
  static constexpr int64_t kRows = 24;
  // Numbers of dst turned at the same time, unless one product sums over more.
  static constexpr int64_t kTurned = int64_t{1} << 15;

  ConvPart part_;
  ConvShape s_;
  int64_t lines_;      // of taps: rows of windows
  int64_t taps_;       // elements that one window sees
  int64_t positions_;  // windows of an image
  int64_t image_;      // elements
  int64_t together_;
};

// oneDNN computes channels sixteen at a time.
int64_t padded(int64_t channels) {
  return (channels + 15) / 16 * 16;
}

}  // namespace

bool wastes_blocks(const ConvShape& shape) {
  if (is_empty(shape) || shape.groups != 1 || shape.channels_last) return false;
  // Few channels in are a case of its own there, and are not padded.
  const int64_t in = shape.in <= 4 ? shape.in : padded(shape.in);
  return 4 * shape.in * shape.out <= 3 * in * padded(shape.out);
}

std::unique_ptr<Conv<float>> gemm_conv(ConvPart part, const ConvShape& shape) {
  if (!wastes_blocks(shape)) return nullptr;
  return std::make_unique<GemmConv>(part, shape);
}

}  // namespace fleet::fluid::cpu

// Convolutions as products of matrices, image by image: what each window sees is a column.
#include <algorithm>
#include <immintrin.h>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/nn/conv.h"

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
        taps_(shape.in * shape.window[0].kernel * shape.window[1].kernel),
        positions_(shape.window[0].out * shape.window[1].out),
        image_(shape.in * shape.window[0].in * shape.window[1].in),
        together_(part == ConvPart::kBackwardFilter
                      ? std::clamp<int64_t>(kLongSum / positions_, 1, shape.batch)
                      : 1) {}

  void run(float* src, float* filter, float* dst, Scratch& scratch) override {
    if (part_ == ConvPart::kForward) return forward(src, filter, dst, scratch);
    if (part_ == ConvPart::kBackwardData) return backward_data(src, filter, dst, scratch);
    backward_filter(src, filter, dst, scratch);
  }

 private:
  // Columns that one product of the filter's gradient should sum over.
  static constexpr int64_t kLongSum = 512;

  static float* take(Scratch& scratch, int64_t elements) {
    return reinterpret_cast<float*>(scratch.get(static_cast<size_t>(elements) * sizeof(float)));
  }

  void forward(const float* src, const float* filter, float* dst, Scratch& scratch) const {
    float* columns = take(scratch, taps_ * positions_);
    for (int64_t i = 0; i < s_.batch; ++i) {
      to_columns(src + i * image_, columns, positions_);
      isa_loops().gemm_f32({.m = s_.out,
                            .n = positions_,
                            .k = taps_,
                            .a = filter,
                            .lda = taps_,
                            .b = columns,
                            .ldb = positions_,
                            .c = dst + i * s_.out * positions_,
                            .ldc = positions_});
    }
  }

  void backward_data(float* src, const float* filter, const float* dst, Scratch& scratch) const {
    float* columns = take(scratch, taps_ * positions_);
    for (int64_t i = 0; i < s_.batch; ++i) {
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
    }
  }

  // The transposed gradient [taps, out], summed over so many images at once.
  void backward_filter(const float* src, float* filter, const float* dst, Scratch& scratch) const {
    const int64_t numbers = taps_ * s_.out;
    const int64_t width = together_ * positions_;
    float* columns = take(scratch, taps_ * width + s_.out * width + 2 * numbers);
    float* turned = columns + taps_ * width;
    float* part = turned + s_.out * width;
    float* sum = part + numbers;
    std::fill_n(sum, numbers, 0.0f);
    for (int64_t first = 0; first < s_.batch; first += together_) {
      const int64_t images = std::min(together_, s_.batch - first);
      for (int64_t i = 0; i < images; ++i) {
        to_columns(src + (first + i) * image_, columns + i * positions_, width);
        transpose(dst + (first + i) * s_.out * positions_, s_.out, positions_,
                  turned + i * positions_ * s_.out);
      }
      isa_loops().gemm_f32({.m = taps_,
                            .n = s_.out,
                            .k = images * positions_,
                            .a = columns,
                            .lda = width,
                            .b = turned,
                            .ldb = s_.out,
                            .c = part,
                            .ldc = s_.out});
      for (int64_t i = 0; i < numbers; ++i) sum[i] += part[i];
    }
    transpose(sum, taps_, s_.out, filter);
  }

  // f(row of the columns, plane, row and column taps) for each.
  template <class F>
  void each_tap(F f) const {
    int64_t row = 0;
    for (int64_t plane = 0; plane < s_.in; ++plane) {
      for (int64_t y = 0; y < s_.window[0].kernel; ++y) {
        for (int64_t x = 0; x < s_.window[1].kernel; ++x, ++row) f(row, plane, y, x);
      }
    }
  }

  void to_columns(const float* image, float* columns, int64_t stride) const {
    const WindowAxis& high = s_.window[0];
    const WindowAxis& wide = s_.window[1];
    each_tap([&](int64_t row, int64_t plane, int64_t y, int64_t x) {
      const Inside rows(high, y);
      const Inside inside(wide, x);
      float* to = columns + row * stride;
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
    each_tap([&](int64_t row, int64_t plane, int64_t y, int64_t x) {
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

  ConvPart part_;
  ConvShape s_;
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
  if (shape.batch == 0 || shape.groups != 1 || shape.channels_last) return false;
  // Few channels in are a case of its own there, and are not padded.
  const int64_t in = shape.in <= 4 ? shape.in : padded(shape.in);
  return 4 * shape.in * shape.out <= 3 * in * padded(shape.out);
}

std::unique_ptr<Conv<float>> gemm_conv(ConvPart part, const ConvShape& shape) {
  if (!wastes_blocks(shape)) return nullptr;
  return std::make_unique<GemmConv>(part, shape);
}

}  // namespace fleet::fluid::cpu

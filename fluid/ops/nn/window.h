// Windows that slide over images: what convolutions and pooling make of strides, paddings and
// dilations. The first of two numbers is always the height's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/core/shape.h"

namespace fleet::fluid {

// One spatial dimension. Sizes may be unknown (-1); what follows from them then is, too.
struct WindowAxis {
  int64_t in = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_before = 0;
  int64_t pad_after = 0;
  int64_t out = 0;

  int64_t extent() const { return dilation * (kernel - 1) + 1; }
};
using Window = std::array<WindowAxis, 2>;

// How attributes say it. `paddings` has one number per dimension, or two (before and after).
struct WindowAttrs {
  std::vector<int32_t> kernel;
  std::vector<int32_t> strides;
  std::vector<int32_t> paddings;
  std::vector<int32_t> dilations = {1, 1};
  std::string padding_algorithm = "EXPLICIT";  // SAME: out = ceil(in / stride); VALID: none
  bool ceil_mode = false;
};

// Positions of the dimensions of an image batch.
struct ImageAxes {
  int channels = 1;
  int height = 2;
  int width = 3;
};
// For "NCHW" (or "AnyLayout") and "NHWC"; ProgramError that names `where` for anything else.
ImageAxes image_axes(std::string_view data_format, std::string_view where);

// Everything about the windows over an image of the given size. Throws ProgramError that names
// `where` for lists of the wrong length, numbers that are not positive, and windows larger than
// the padded image. One that lacks less than a stride lies over the image's end, once, as if there
// were padding: Paddle's division rounds towards 0.
Window make_window(const WindowAttrs& attrs, std::array<int64_t, 2> image, std::string_view where);

// The transposed convolution, which takes an image of `out` of the window to one of `in`: given the
// smaller image, the window whose `in` is the larger one. `output_size` chooses among the sizes
// that one stride leaves open; empty: the smallest.
Window make_transposed_window(const WindowAttrs& attrs, std::array<int64_t, 2> image,
                              const std::vector<int32_t>& output_size, std::string_view where);

}  // namespace fleet::fluid

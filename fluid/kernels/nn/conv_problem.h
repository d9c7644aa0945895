// What conv2d, conv2d_transpose and their gradients compute, for every device: each result is one
// of three products.
#pragma once

#include "fluid/kernels/kernel.h"
#include "fluid/ops/nn/window.h"

namespace fleet::fluid {

// src [n, in, h, w] with filter [out, in / groups, kh, kw] makes dst [n, out, oh, ow]; window has
// the rest. With `channels_last` src and dst are [n, h, w, channels].
struct ConvShape {
  int64_t batch = 0;
  int64_t in = 0;
  int64_t out = 0;
  int64_t groups = 1;
  Window window;
  bool channels_last = false;
  // In blocks of channels (fluid/kernels/image_layout.h).
  bool src_blocked = false;
  bool dst_blocked = false;
};

enum class ConvPart { kForward, kBackwardData, kBackwardFilter };

// The problem behind an op: for a transposed convolution `src` is the op's output, the larger
// image.
struct ConvProblem {
  ConvShape shape;
  Shape output;  // of the op
};
// Throws ProgramError where Input, Filter and attributes do not fit.
ConvProblem conv_problem(const PrepareContext& context, bool transposed);

}  // namespace fleet::fluid

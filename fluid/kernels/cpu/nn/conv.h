// Convolutions of image batches, prepared for one set of shapes: the three products that forward
// and backward of conv2d and conv2d_transpose are made of.
#pragma once

#include <memory>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/kernel.h"
#include "fluid/kernels/nn/conv_problem.h"

namespace fleet::fluid::cpu {

// One of the products. Operands by name: forward reads src and filter and writes dst,
// backward-data reads dst and filter and writes src, backward-filter reads src and dst and writes
// filter.
template <class T>
class Conv {
 public:
  virtual ~Conv() = default;
  virtual void run(T* src, T* filter, T* dst, Scratch& scratch, const Tiles& tiles) = 0;
};

// Plain loops, any shape.
template <class T>
std::unique_ptr<Conv<T>> reference_conv(ConvPart part, const ConvShape& shape);
// True where blocks of channels would be so empty that oneDNN is slower than what follows.
bool wastes_blocks(const ConvShape& shape);
// As many images at once as a vector has lanes; null where oneDNN is faster, for batches that leave
// lanes empty, results of less than four channels, and strides.
std::unique_ptr<Conv<float>> lane_conv(ConvPart part, const ConvShape& shape,
                                       const IsaLoops& isa = isa_loops());
// Columns of windows times the filter; null where oneDNN is faster.
std::unique_ptr<Conv<float>> gemm_conv(ConvPart part, const ConvShape& shape);
// Null when the library has no kernel for the shape.
std::unique_ptr<Conv<float>> onednn_conv(ConvPart part, const ConvShape& shape);

}  // namespace fleet::fluid::cpu

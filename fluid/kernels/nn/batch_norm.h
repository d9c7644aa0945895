// What batch_norm and its gradient check and compute, on every device: positions of inputs and
// outputs, -1 for those that are not there or that nobody wants. Each throws ProgramError that
// names the slot.
#pragma once

#include "fluid/kernels/kernel.h"
#include "fluid/kernels/nn/channels.h"
#include "fluid/ops/nn/norm.h"

namespace fleet::fluid {

// Of input X.
Channels channels_of(const PrepareContext& context, const BatchNormAttrs& attrs);

struct BatchNormSlots {
  BatchNormAttrs attrs;
  Channels channels;
  int x = -1;
  int scale = -1;
  int bias = -1;
  int mean = -1;
  int variance = -1;
  int momentum = -1;
  int y = -1;
  int mean_out = -1;
  int variance_out = -1;
  int saved_mean = -1;
  int saved_variance = -1;
};
// `images`: of X and Y; `dtype`: of the rest.
BatchNormSlots batch_norm_of(PrepareContext& context, DType images, DType dtype);

// `mean` and `variance`: of the batch, or with global statistics those that are kept.
struct BatchNormBackSlots {
  BatchNormAttrs attrs;
  Channels channels;
  int x = -1;
  int scale = -1;
  int mean = -1;
  int variance = -1;
  int grad = -1;
  int x_grad = -1;
  int scale_grad = -1;
  int bias_grad = -1;
};
BatchNormBackSlots batch_norm_back_of(PrepareContext& context, DType images, DType dtype);

}  // namespace fleet::fluid

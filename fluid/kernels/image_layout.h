// Images in blocks of channels: elements [n, c, h, w] lie as [n, c / block, h, w, block], so that
// the channels of one point fill a vector register. Convolutions compute in this order; between
// them nothing has to be reordered. Layout::kBlocked is this order.
#pragma once

#include "fluid/core/tensor.h"

namespace fleet::fluid {

// Channels in a block: what a vector register of this processor holds.
int64_t image_block();

// float32, and whole blocks of channels. -1 as batch is fine.
bool can_be_blocked(DType dtype, const Shape& shape);

// Makes `to` hold the elements of `from`, which has the other order; neither may share memory with
// the other.
void reorder_image(const Tensor& from, Tensor& to);

}  // namespace fleet::fluid

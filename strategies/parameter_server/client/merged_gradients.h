// Gradients of one parameter that an asynchronous worker sends as one.
#pragma once

#include <memory>
#include <vector>

#include "base/buffer.h"
#include "fluid/core/value.h"

namespace fleet::strategies {

// A gradient on its way: elements, or rows.
struct QueuedGradient {
  Buffer memory;
  std::shared_ptr<const fluid::SelectedRows> rows = nullptr;
};

// The sum of the gradients, or their mean, in the order given; in the memory of the first.
Buffer merge_gradients(std::vector<Buffer> gradients, fluid::DType dtype, bool by_sum);
// The same of rows: the values that dense gradients would give in these rows. The result's are
// ascending.
fluid::SelectedRows merge_rows(const std::vector<QueuedGradient>& gradients, bool by_sum);

}  // namespace fleet::strategies

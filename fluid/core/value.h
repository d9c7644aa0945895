// What a variable of a scope can hold.
#pragma once

#include <any>
#include <variant>
#include <vector>

#include "fluid/core/tensor.h"

namespace fleet::fluid {

// Some rows of a tensor of `height` rows: value[i] is row rows[i]. A row may occur several times;
// the meaning is then the sum.
struct SelectedRows {
  std::vector<int64_t> rows;
  int64_t height = 0;
  Tensor value;
};

using TensorArray = std::vector<Tensor>;

// Raw holds what belongs to a runtime, such as a communicator's state.
struct Raw {
  std::any content;
};

using Value = std::variant<std::monostate, Tensor, SelectedRows, TensorArray, Raw>;

}  // namespace fleet::fluid

#include "fluid/core/lod.h"

#include <algorithm>

#include "base/strings.h"

namespace fleet::fluid {

std::string fault_of_lod(const Tensor& tensor) {
  const LoD& lod = tensor.lod();
  for (size_t i = 0; i < lod.size(); ++i) {
    const auto& offsets = lod[i];
    if (offsets.empty()) return str_cat("level ", i, " has no offsets, not even the first 0");
    if (offsets.front() != 0) return str_cat("level ", i, " begins with ", offsets.front());
    if (!std::is_sorted(offsets.begin(), offsets.end())) return str_cat("level ", i, " falls");
    const bool last = i + 1 == lod.size();
    const int64_t rows = tensor.shape().rank() == 0 ? 1 : tensor.shape()[0];
    const int64_t wanted = last ? rows : static_cast<int64_t>(lod[i + 1].size()) - 1;
    if (offsets.back() == wanted) continue;
    return str_cat("level ", i, " ends with ", offsets.back(), " for ", wanted,
                   last ? " rows" : " sequences");
  }
  return "";
}

}  // namespace fleet::fluid

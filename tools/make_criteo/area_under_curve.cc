#include "tools/make_criteo/area_under_curve.h"

#include <algorithm>
#include <cstdint>

namespace fleet::tools {

double area_under_curve(std::vector<double>& positives, std::vector<double>& negatives) {
  if (positives.empty() || negatives.empty()) return 0;
  std::sort(positives.begin(), positives.end());
  std::sort(negatives.begin(), negatives.end());
  // Twice the number of pairs in the right order.
  uint64_t pairs = 0;
  auto below = negatives.begin();
  auto equal = negatives.begin();
  for (const double score : positives) {
    while (below != negatives.end() && *below < score) ++below;
    equal = std::max(equal, below);
    while (equal != negatives.end() && *equal == score) ++equal;
    pairs += static_cast<uint64_t>(below - negatives.begin()) +
             static_cast<uint64_t>(equal - negatives.begin());
  }
  const uint64_t all = uint64_t{positives.size()} * negatives.size();
  return static_cast<double>(pairs) / 2 / static_cast<double>(all);
}

}  // namespace fleet::tools

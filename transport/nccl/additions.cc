#include "transport/nccl/additions.h"

#include <numeric>

namespace fleet::transport {

// What additions leave is kept as on a stack: the sum of a left branch stays while the right one is
// added up.
std::vector<Addition> additions_of(std::span<const ShardRange> nodes) {
  std::vector<int32_t> arrays(nodes.size());
  std::iota(arrays.begin(), arrays.end(), 0);
  std::vector<Addition> additions;
  int32_t kept = 0;
  const auto add = [&](int32_t left, int32_t right) {
    kept -= (left < 0 ? 1 : 0) + (right < 0 ? 1 : 0);
    additions.push_back({left, right, kept});
    return ~kept++;
  };
  const ShardRange whole = nodes.empty() ? ShardRange{} : ShardRange{0, nodes.back().end};
  (void)fold_nodes<int32_t>(whole, nodes, arrays, add);
  return additions;
}

}  // namespace fleet::transport

#include "transpiler/parameter_server/placement.h"

#include <algorithm>

#include "base/hash.h"

namespace fleet::transpiler {

std::vector<RowSlice> slice_rows(const fluid::Shape& shape, int parts, int min_block_size) {
  const int64_t count = shape.numel();
  if (shape.rank() == 0 || count <= 0 || parts <= 1) return {{.shape = shape, .offset = 0}};
  const int64_t row = shape.numel(1, shape.rank());
  const int64_t wanted = std::min<int64_t>(parts, std::max<int64_t>(1, count / min_block_size));
  const int64_t block_rows = ((count + wanted - 1) / wanted + row - 1) / row;
  std::vector<RowSlice> slices;
  for (int64_t first = 0; first < shape[0]; first += block_rows) {
    fluid::Shape part = shape;
    part.set(0, std::min(block_rows, shape[0] - first));
    slices.push_back({.shape = part, .offset = first * row});
  }
  return slices;
}

int Dispatcher::next(std::string_view slice_name) {
  if (by_hash_) return static_cast<int>(mix64(fnv1a(slice_name)) % static_cast<uint64_t>(servers_));
  const int server = turn_;
  turn_ = (turn_ + 1) % servers_;
  return server;
}

}  // namespace fleet::transpiler

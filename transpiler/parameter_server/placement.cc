#include "transpiler/parameter_server/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

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

namespace {

// Rows of each slice when every server is filled up to `level`.
std::vector<int64_t> filled(std::span<const int64_t> loads, std::span<const int64_t> least,
                            int64_t row, int64_t level) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < loads.size(); ++i) {
    rows.push_back(std::max(least[i], (level - loads[i]) / row));
  }
  return rows;
}

int64_t sum_of(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

std::vector<int64_t> level_rows(std::span<const int64_t> loads, int64_t row, int64_t rows,
                                int64_t least) {
  const auto count = static_cast<int64_t>(loads.size());
  // The one with the largest load gets what is left.
  const auto last = std::max_element(loads.begin(), loads.end()) - loads.begin();
  std::vector<int64_t> lower(loads.size(), std::min(least, std::max<int64_t>(1, rows / count)));
  lower[static_cast<size_t>(last)] = 1;
  int64_t low = 0;  // too low a level, or just right
  int64_t high = loads[static_cast<size_t>(last)] + row * rows;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (sum_of(filled(loads, lower, row, middle)) <= rows) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  auto levelled = filled(loads, lower, row, low);
  for (int64_t left = rows - sum_of(levelled); left > 0; --left) {
    size_t lowest = 0;
    for (size_t i = 1; i < loads.size(); ++i) {
      if (loads[i] + levelled[i] * row < loads[lowest] + levelled[lowest] * row) lowest = i;
    }
    ++levelled[lowest];
  }
  return levelled;
}

std::vector<int> dispatch(const SplitMethod& method, std::span<const ServerPart> parts,
                          std::span<const std::string> servers) {
  auto dispatched = method.dispatcher()->dispatch(parts, servers);
  const auto refuse = [&method](std::string what, std::string expected, std::string got) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = std::move(what),
                 .where = str_cat("split_method '", method.name(), "', dispatch"),
                 .expected = std::move(expected),
                 .got = std::move(got),
                 .fix = "return, for each part, the position of its server in `servers`"});
  };
  if (dispatched.size() != parts.size()) {
    refuse("a split method left parts out, or made some up", str_cat(parts.size(), " positions"),
           str_cat(dispatched.size()));
  }
  for (size_t i = 0; i < dispatched.size(); ++i) {
    if (dispatched[i] >= 0 && static_cast<size_t>(dispatched[i]) < servers.size()) continue;
    refuse("a split method names a server that is not there",
           str_cat("0 to ", servers.size() - 1, " for '", parts[i].name, "'"),
           str_cat(dispatched[i]));
  }
  return dispatched;
}

}  // namespace fleet::transpiler

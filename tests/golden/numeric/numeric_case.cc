#include "tests/golden/numeric/numeric_case.h"

#include <numeric>

namespace fleet::fluid::golden {
namespace {

Tensor gathered(const Tensor& all, std::span<const int64_t> rows) {
  Shape shape = all.shape();
  shape.set(0, static_cast<int64_t>(rows.size()));
  Tensor batch(all.dtype(), shape);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    batch.rows(at, at + 1).copy_from(all.rows(rows[i], rows[i] + 1));
  }
  return batch;
}

}  // namespace

std::vector<std::string> FileCase::stored_below(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : reader_.entries()) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  return names;
}

Feed FileCase::feed_of(const std::string& prefix, std::span<const int64_t> rows) const {
  Feed result;
  for (const std::string& name : stored_below(prefix)) {
    if (name.ends_with("/lengths")) continue;
    if (name.ends_with("/values")) {
      const std::string text = name.substr(0, name.size() - 7);
      result.emplace_back(text, sequences(prefix + text, rows));
    } else {
      result.emplace_back(name, gathered(tensor(prefix + name), rows));
    }
  }
  return result;
}

Tensor FileCase::sequences(const std::string& name, std::span<const int64_t> rows) const {
  const Tensor lengths = tensor(name + "/lengths");
  const auto sizes = lengths.values<int64_t>();
  std::vector<int64_t> elements;
  std::vector<int64_t> offsets = {0};
  for (const int64_t row : rows) {
    const auto end = sizes.begin() + row;
    const int64_t first = std::accumulate(sizes.begin(), end, int64_t{0});
    for (int64_t i = 0; i < *end; ++i) elements.push_back(first + i);
    offsets.push_back(offsets.back() + *end);
  }
  Tensor values = tensor(name + "/values");
  if (values.shape().rank() == 1) values = values.reshaped(Shape{values.shape()[0], 1});
  Tensor batch = gathered(values, elements);
  batch.set_lod({offsets});
  return batch;
}

}  // namespace fleet::fluid::golden

#include <algorithm>
#include <utility>

#include "fluid/executor/shards/shard_feeds_impl.h"

namespace fleet::fluid {
namespace {

LoD join_lod(const std::vector<Tensor>& parts) {
  LoD joined = parts.front().lod();
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const Tensor& part) {
    return part.lod().size() == joined.size();
  });
  if (!alike) return {};
  for (size_t p = 1; p < parts.size(); ++p) {
    for (size_t level = 0; level < joined.size(); ++level) {
      const auto& offsets = parts[p].lod()[level];
      const auto base = joined[level].back();
      for (size_t i = 1; i < offsets.size(); ++i) joined[level].push_back(base + offsets[i]);
    }
  }
  return joined;
}

}  // namespace

int64_t samples_of(const Tensor& fed) {
  return fed.lod().empty() ? fed.shape()[0] : static_cast<int64_t>(fed.lod().front().size()) - 1;
}

Tensor part_of_feed(const Tensor& fed, int part, int parts) {
  const int64_t each = samples_of(fed) / parts;
  int64_t begin = part * each;
  int64_t end = begin + each;
  LoD cut;
  for (const auto& level : fed.lod()) {
    auto& offsets = cut.emplace_back(level.begin() + begin, level.begin() + end + 1);
    const auto base = offsets.front();
    begin = static_cast<int64_t>(base);
    end = static_cast<int64_t>(offsets.back());
    for (auto& offset : offsets) offset -= base;
  }
  Tensor view = fed.rows(begin, end);
  view.set_lod(std::move(cut));
  return view;
}

Tensor join_rows(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts.front();
  const Tensor& first = parts.front();
  Shape shape = first.shape();
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.shape()[0];
  shape.set(0, rows);
  Tensor joined(first.dtype(), shape);
  int64_t at = 0;
  for (const Tensor& part : parts) {
    joined.rows(at, at + part.shape()[0]).copy_from(part);
    at += part.shape()[0];
  }
  joined.set_lod(join_lod(parts));
  return joined;
}

}  // namespace fleet::fluid

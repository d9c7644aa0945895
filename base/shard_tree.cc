#include "base/shard_tree.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/strings.h"

namespace fleet {
namespace {

// Elements that are added at a time, so that scratch stays in the first-level cache.
constexpr size_t kBlock = 512;
constexpr int kMaxSlots = 32;

std::string to_text(ShardRange range) {
  return str_cat('[', range.begin, ", ", range.end, ')');
}

void collect_maximal(ShardRange node, ShardRange range, std::vector<ShardRange>& found) {
  if (node.end <= range.begin || range.end <= node.begin) return;
  if (range.contains(node)) {
    found.push_back(node);
    return;
  }
  const int middle = node.begin + tree_split(node.size());
  collect_maximal({node.begin, middle}, range, found);
  collect_maximal({middle, node.end}, range, found);
}

template <class T>
void add(const T* left, const T* right, T* out, size_t n) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    for (size_t i = 0; i < n; ++i) {
      out[i] = static_cast<T>(static_cast<U>(left[i]) + static_cast<U>(right[i]));
    }
  } else {
    for (size_t i = 0; i < n; ++i) out[i] = left[i] + right[i];
  }
}

template <class T>
void add_four(std::span<const T* const> in, T* out, size_t n) {
  const T *a = in[0], *b = in[1], *c = in[2], *d = in[3];
  for (size_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

}  // namespace

ShardRange owned_shards(int index, int processes, int shards) {
  if (processes < 1 || shards < processes || index < 0 || index >= processes) {
    throw_error(
        ErrorCode::kInvalidArgument,
        {.what = "shards cannot be divided among these processes",
         .where = "logical_shards",
         .expected = "0 <= index < processes <= shards",
         .got = str_cat("index ", index, ", ", processes, " processes, ", shards, " shards"),
         .fix = "set logical_shards to at least the number of workers"});
  }
  const int each = shards / processes;
  const int more = shards % processes;
  const int begin = index * each + std::min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

int tree_split(int n) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(n) - 1));
}

bool is_tree_node(ShardRange range, int shards) {
  ShardRange node{0, shards};
  if (range.size() < 1 || !node.contains(range)) return false;
  while (node != range) {
    if (node.size() < 2) return false;
    const int middle = node.begin + tree_split(node.size());
    if (range.end <= middle) {
      node.end = middle;
    } else if (range.begin >= middle) {
      node.begin = middle;
    } else {
      return false;
    }
  }
  return true;
}

std::vector<ShardRange> maximal_nodes(ShardRange range, int shards) {
  std::vector<ShardRange> found;
  if (shards > 0) collect_maximal({0, shards}, range, found);
  return found;
}

void shard_tree_detail::fail_parts(ShardRange node, std::span<const ShardRange> parts) {
  std::vector<std::string> texts;
  for (const auto& part : parts) texts.push_back(to_text(part));
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "partial sums do not make up a node of the shard tree",
               .where = str_cat("shards ", to_text(node)),
               .expected = "tree nodes in shard order, one value each, that cover the node once",
               .got = join(texts, " "),
               .fix = "cut a worker's range with maximal_nodes()"});
}

TreeSum::TreeSum(int leaves) {
  std::vector<ShardRange> parts;
  parts.reserve(static_cast<size_t>(std::max(leaves, 0)));
  for (int i = 0; i < leaves; ++i) parts.push_back({i, i + 1});
  *this = TreeSum(parts, leaves);
}

TreeSum::TreeSum(std::span<const ShardRange> parts, int shards) {
  if (parts.empty()) shard_tree_detail::fail_parts({0, shards}, parts);
  const ShardRange whole{parts.front().begin, parts.back().end};
  if (!is_tree_node(whole, shards)) shard_tree_detail::fail_parts(whole, parts);
  // Every node of the large tree is, on its own, the tree over its leaves.
  compile(whole, parts, 0);
  if (static_cast<size_t>(inputs_) != parts.size() || slots_ > kMaxSlots) {
    shard_tree_detail::fail_parts(whole, parts);
  }
}

int TreeSum::compile(ShardRange node, std::span<const ShardRange> parts, int slot) {
  if (static_cast<size_t>(inputs_) >= parts.size()) shard_tree_detail::fail_parts(node, parts);
  if (parts[static_cast<size_t>(inputs_)] == node) return inputs_++;
  if (node.size() < 2) shard_tree_detail::fail_parts(node, parts);
  const int middle = node.begin + tree_split(node.size());
  const int left = compile({node.begin, middle}, parts, slot);
  const int right = compile({middle, node.end}, parts, left < 0 ? slot + 1 : slot);
  slots_ = std::max(slots_, slot + 1);
  adds_.push_back({left, right, slot});
  return ~slot;
}

template <class T>
void TreeSum::operator()(std::span<const T* const> arrays, T* out, size_t n) const {
  if (arrays.size() != static_cast<size_t>(inputs_)) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "a tree sum has the wrong number of inputs",
                                              .where = "TreeSum",
                                              .expected = str_cat(inputs_, " arrays"),
                                              .got = str_cat(arrays.size(), " arrays"),
                                              .fix = "give one array for each part"});
  }
  if (adds_.empty()) {
    if (out != arrays[0] && n > 0) std::memcpy(out, arrays[0], n * sizeof(T));
    return;
  }
  if (adds_.size() == 1) return add(arrays[0], arrays[1], out, n);
  if constexpr (std::is_floating_point_v<T>) {
    const bool four_leaves = inputs_ == 4 && adds_[1].left == 2 && adds_[2].left < 0;
    if (four_leaves) return add_four(arrays, out, n);
  }
  // The last addition of a block writes `out`; all operands of that block are read by then, so
  // that `out` may be an input.
  std::array<T, kBlock * kMaxSlots> scratch;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t count = std::min(kBlock, n - begin);
    const auto operand = [&](int id) -> const T* {
      return id >= 0 ? arrays[static_cast<size_t>(id)] + begin
                     : scratch.data() + static_cast<size_t>(~id) * kBlock;
    };
    for (const Add& step : adds_) {
      T* target = &step == &adds_.back() ? out + begin
                                         : scratch.data() + static_cast<size_t>(step.slot) * kBlock;
      add(operand(step.left), operand(step.right), target, count);
    }
  }
}

template <class T>
void tree_sum(std::span<const T* const> shards, T* out, size_t n) {
  if (shards.size() == 2) return add(shards[0], shards[1], out, n);
  TreeSum(static_cast<int>(shards.size()))(shards, out, n);
}

template void TreeSum::operator()(std::span<const float* const>, float*, size_t) const;
template void TreeSum::operator()(std::span<const double* const>, double*, size_t) const;
template void TreeSum::operator()(std::span<const int64_t* const>, int64_t*, size_t) const;
template void tree_sum(std::span<const float* const>, float*, size_t);
template void tree_sum(std::span<const double* const>, double*, size_t);
template void tree_sum(std::span<const int64_t* const>, int64_t*, size_t);

}  // namespace fleet

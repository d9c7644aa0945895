#include "strategies/collective/row_reducer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/row_sum.h"
#include "fluid/kernels/shard_rows.h"

namespace fleet::strategies {
namespace {

// A contributor's rows of a gradient: their values, and then how far each row number is from the
// one before, in groups of 7 bits, low ones first, with the eighth bit where another follows. Each
// part begins at a multiple of 8.
constexpr uint64_t kMore = 0x80;

size_t whole(size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

size_t row_bytes_of(const fluid::SelectedRows& rows) {
  const fluid::Shape& shape = rows.value.shape();
  return static_cast<size_t>(shape.numel(1, shape.rank())) * fluid::dtype_size(rows.value.dtype());
}

void pack(const fluid::SelectedRows& rows, std::vector<std::byte>& bytes) {
  if (rows.rows.empty()) return;
  const size_t at = bytes.size();
  bytes.resize(at + whole(rows.value.bytes()));
  std::memcpy(bytes.data() + at, rows.value.raw(), rows.value.bytes());
  int64_t last = 0;
  for (const int64_t row : rows.rows) {
    auto distance = static_cast<uint64_t>(row - std::exchange(last, row));
    for (; distance >= kMore; distance >>= 7) {
      bytes.push_back(static_cast<std::byte>(distance | kMore));
    }
    bytes.push_back(static_cast<std::byte>(distance));
  }
  bytes.resize(whole(bytes.size()));
}

[[noreturn]] void fail_packed(size_t rows, int64_t height) {
  throw_error(ErrorCode::kBadFrame, {.what = "the rows of another rank are not valid",
                                     .where = "sum of sparse gradients",
                                     .expected = str_cat(rows, " ascending rows below ", height),
                                     .got = "others",
                                     .fix = "run the same program and version at all ranks"});
}

// Reads from `at` on, and moves it behind what it read.
std::vector<int64_t> unpack_rows(std::span<const std::byte> bytes, size_t& at, size_t count,
                                 int64_t height) {
  std::vector<int64_t> rows(count);
  uint64_t row = 0;
  for (size_t i = 0; i < count; ++i) {
    uint64_t distance = 0;
    for (int shift = 0;; shift += 7) {
      if (at >= bytes.size() || shift > 56) fail_packed(count, height);
      const auto byte = static_cast<uint64_t>(bytes[at++]);
      distance |= (byte & ~kMore) << shift;
      if ((byte & kMore) == 0) break;
    }
    row += distance;
    if (row >= static_cast<uint64_t>(height) || (i > 0 && distance == 0)) {
      fail_packed(count, height);
    }
    rows[i] = static_cast<int64_t>(row);
  }
  if (count > 0) at = whole(at);
  return rows;
}

}  // namespace

RowReducer::RowReducer(transport::CollectiveCommunicator& communicator,
                       const transport::ShardLayout& layout, GradientReducerOptions options)
    : communicator_(communicator),
      layout_(layout),
      options_(std::move(options)),
      first_shard_(layout.range(communicator.rank()).begin) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    most_nodes_ = std::max(most_nodes_, layout.nodes(rank).size());
  }
}

void RowReducer::begin_step(uint64_t step) {
  step_ = step;
  current_shard_ = 0;
  next_ = 0;
  finished_ = false;
  gradients_.clear();
}

void RowReducer::check(int local_shard, size_t number) const {
  if (local_shard == 0 || number < gradients_.size()) return;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "a logical shard has more sparse gradients than others",
               .where = str_cat("shard ", local_shard, " of this rank"),
               .expected = str_cat(gradients_.size(), " gradients"),
               .got = "one more",
               .fix = "run the same ops for every shard"});
}

void RowReducer::add(int local_shard, const fluid::SelectedRows& gradient, fluid::Value& out) {
  if (local_shard != current_shard_) {
    current_shard_ = local_shard;
    next_ = 0;
  }
  const size_t number = next_++;
  check(local_shard, number);
  if (local_shard == 0) gradients_.emplace_back();
  Gradient& kept = gradients_[number];
  kept.out = &out;
  kept.shards.push_back(
      {.rows = gradient.rows, .height = gradient.height, .value = gradient.value.clone()});
  const ShardRange node = layout_.nodes(communicator_.rank())[kept.nodes.size()];
  if (first_shard_ + local_shard + 1 < node.end) return;
  kept.nodes.push_back(fluid::sum_of_rows(kept.shards));
  kept.shards.clear();
}

RowReducer::Gathered RowReducer::gather(std::span<const int64_t> counts,
                                        std::span<const std::byte> bytes) {
  const transport::CollectiveLabel label{.phase = "rows", .step = static_cast<int64_t>(step_)};
  const auto ranks = static_cast<size_t>(communicator_.size());
  std::vector<int64_t> mine(counts.begin(), counts.end());
  mine.push_back(static_cast<int64_t>(bytes.size()));
  std::vector<int64_t> all(mine.size() * ranks);
  wait(communicator_.all_gather(std::as_bytes(std::span(mine)),
                                std::as_writable_bytes(std::span(all)), label));
  Gathered gathered;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
    const auto last = from + static_cast<std::ptrdiff_t>(counts.size());
    gathered.counts.insert(gathered.counts.end(), from, last);
    gathered.of_a_rank = std::max(gathered.of_a_rank, static_cast<size_t>(*last));
  }
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(gathered.of_a_rank);
  gathered.bytes.resize(gathered.of_a_rank * ranks);
  wait(communicator_.all_gather(padded, gathered.bytes, label));
  return gathered;
}

// `begin`: by rank, where its part of the gradient begins; moved on behind it.
template <class T>
fluid::SelectedRows RowReducer::sum(const Gathered& gathered, size_t index,
                                    std::vector<size_t>& begin, double factor) const {
  const fluid::SelectedRows& own = gradients_[index].nodes.front();
  std::vector<std::vector<int64_t>> numbers;
  std::vector<const T*> first;
  for (int rank = 0; rank < layout_.ranks(); ++rank) {
    size_t& at = begin[static_cast<size_t>(rank)];
    const std::span<const std::byte> bytes(
        gathered.bytes.data() + static_cast<size_t>(rank) * gathered.of_a_rank, gathered.of_a_rank);
    for (size_t node = 0; node < layout_.nodes(rank).size(); ++node) {
      const auto count =
          static_cast<size_t>(gathered.counts[count_at(rank, index, node, gradients_.size())]);
      if (count > (bytes.size() - at) / row_bytes_of(own)) fail_packed(count, own.height);
      first.push_back(reinterpret_cast<const T*>(bytes.data() + at));
      at += whole(count * row_bytes_of(own));
      numbers.push_back(unpack_rows(bytes, at, count, own.height));
    }
  }
  std::vector<fluid::RowsView<T>> parts;
  for (size_t i = 0; i < numbers.size(); ++i) parts.push_back({numbers[i], first[i]});
  fluid::SelectedRows total =
      fluid::sum_of_parts<T>(parts, own.height, own.value.shape(), layout_.sum());
  if (factor == 1.0) return total;
  T* values = total.value.template data<T>();
  for (int64_t i = 0; i < total.value.numel(); ++i) values[i] *= static_cast<T>(factor);
  return total;
}

void RowReducer::finish(double factor) {
  if (!pending()) return;
  finished_ = true;
  std::vector<int64_t> counts;
  std::vector<std::byte> bytes;
  for (const Gradient& gradient : gradients_) {
    for (const auto& node : gradient.nodes) {
      counts.push_back(static_cast<int64_t>(node.rows.size()));
      pack(node, bytes);
    }
    counts.resize(counts.size() + most_nodes_ - gradient.nodes.size());
  }
  const Gathered gathered = gather(counts, bytes);
  std::vector<size_t> begin(static_cast<size_t>(layout_.ranks()), 0);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const bool wide = gradients_[i].nodes.front().value.dtype() == fluid::DType::kFloat64;
    *gradients_[i].out =
        wide ? sum<double>(gathered, i, begin, factor) : sum<float>(gathered, i, begin, factor);
  }
}

void RowReducer::give_nothing(size_t gradients, uint64_t step) {
  if (gradients == 0) return;
  begin_step(step);
  const std::vector<int64_t> counts(gradients * most_nodes_, 0);
  (void)gather(counts, {});
}

}  // namespace fleet::strategies

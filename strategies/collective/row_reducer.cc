#include "strategies/collective/row_reducer.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "fluid/core/row_sum.h"
#include "fluid/kernels/shard_rows.h"

namespace fleet::strategies {
namespace {

// The numbers of the rows, and then their values; each begins at a multiple of 8.
size_t packed_bytes(int64_t rows, size_t row_bytes) {
  const size_t values = static_cast<size_t>(rows) * row_bytes;
  return static_cast<size_t>(rows) * sizeof(int64_t) + (values + 7) / 8 * 8;
}

size_t row_bytes_of(const fluid::SelectedRows& rows) {
  const fluid::Shape& shape = rows.value.shape();
  return static_cast<size_t>(shape.numel(1, shape.rank())) * fluid::dtype_size(rows.value.dtype());
}

void pack(const fluid::SelectedRows& rows, std::vector<std::byte>& bytes) {
  const size_t at = bytes.size();
  const auto count = static_cast<int64_t>(rows.rows.size());
  bytes.resize(at + packed_bytes(count, row_bytes_of(rows)));
  if (count == 0) return;
  const size_t numbers = rows.rows.size() * sizeof(int64_t);
  std::memcpy(bytes.data() + at, rows.rows.data(), numbers);
  std::memcpy(bytes.data() + at + numbers, rows.value.raw(), rows.value.bytes());
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
  std::vector<fluid::RowsView<T>> parts;
  for (int rank = 0; rank < layout_.ranks(); ++rank) {
    size_t& at = begin[static_cast<size_t>(rank)];
    for (size_t node = 0; node < layout_.nodes(rank).size(); ++node) {
      const int64_t count = gathered.counts[count_at(rank, index, node, gradients_.size())];
      const std::byte* from =
          gathered.bytes.data() + static_cast<size_t>(rank) * gathered.of_a_rank + at;
      const auto rows = static_cast<size_t>(count);
      parts.push_back({{reinterpret_cast<const int64_t*>(from), rows},
                       reinterpret_cast<const T*>(from + rows * sizeof(int64_t))});
      at += packed_bytes(count, row_bytes_of(own));
    }
  }
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

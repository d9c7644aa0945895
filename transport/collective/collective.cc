#include "transport/collective/collective.h"

#include <cstring>
#include <mutex>

#include "base/strings.h"

namespace fleet::transport {
namespace {

std::vector<ShardRange> nodes_of(int ranks, int shards) {
  std::vector<ShardRange> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = maximal_nodes(owned_shards(rank, ranks, shards), shards);
    nodes.insert(nodes.end(), own.begin(), own.end());
  }
  return nodes;
}

template <class T>
void sum_typed(const ShardLayout& layout, std::span<const void* const> parts, void* out,
               size_t count) {
  std::vector<const T*> arrays;
  arrays.reserve(parts.size());
  for (const void* part : parts) arrays.push_back(static_cast<const T*>(part));
  layout.sum()(std::span<const T* const>(arrays), static_cast<T*>(out), count);
}

class SingleCommunicator : public CollectiveCommunicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel) override {
    if (auto broken = status(); !broken.ok()) return CollectiveToken(broken);
    auto checked = collective_detail::check_reduction(layout, 0, 1, parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    collective_detail::sum_parts(layout, type, parts, out, count);
    return {};
  }
  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    return all_reduce(layout, type, parts, out, counts[0], label);
  }
  CollectiveToken broadcast(std::span<std::byte>, int, CollectiveLabel) override {
    return CollectiveToken(status());
  }
  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel) override {
    if (!mine.empty() && mine.data() != all.data()) {
      std::memcpy(all.data(), mine.data(), mine.size());
    }
    return CollectiveToken(status());
  }
  CollectiveToken barrier(CollectiveLabel) override { return CollectiveToken(status()); }

  void abort(Status reason) override {
    const std::lock_guard guard(mutex_);
    if (broken_.ok()) broken_ = std::move(reason);
  }

 private:
  Status status() {
    const std::lock_guard guard(mutex_);
    return broken_;
  }

  std::mutex mutex_;
  Status broken_;
};

}  // namespace

size_t size_of(ElementType type) {
  return type == ElementType::kFloat32 ? 4 : 8;
}

ShardLayout::ShardLayout(int ranks, int shards)
    : shards_(shards), nodes_(nodes_of(ranks, shards)), sum_(nodes_, shards) {
  first_part_.push_back(0);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = maximal_nodes(owned_shards(rank, ranks, shards), shards);
    first_part_.push_back(first_part_.back() + own.size());
  }
}

std::span<const ShardRange> ShardLayout::nodes(int rank) const {
  const size_t begin = first_part_[static_cast<size_t>(rank)];
  const size_t end = first_part_[static_cast<size_t>(rank) + 1];
  return std::span(nodes_).subspan(begin, end - begin);
}

std::unique_ptr<CollectiveCommunicator> single_communicator() {
  return std::make_unique<SingleCommunicator>();
}

namespace collective_detail {

void sum_parts(const ShardLayout& layout, ElementType type, std::span<const void* const> parts,
               void* out, size_t count) {
  switch (type) {
    case ElementType::kFloat32:
      return sum_typed<float>(layout, parts, out, count);
    case ElementType::kFloat64:
      return sum_typed<double>(layout, parts, out, count);
    case ElementType::kInt64:
      return sum_typed<int64_t>(layout, parts, out, count);
  }
}

Status missing_ranks(std::string_view operation, CollectiveLabel label, int rank,
                     std::span<const int> missing, Duration waited) {
  std::string step = label.step >= 0 ? str_cat(", step ", label.step) : "";
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
  const char* plural = missing.size() == 1 ? "rank " : "ranks ";
  const std::string who = missing.empty() ? "a rank" : str_cat(plural, join(missing, ", "));
  return Status(ErrorCode::kPeerLost,
                {.what = str_cat(who, " did not come to a collective operation"),
                 .where = str_cat("rank ", rank, ", ", operation, " of ", label.phase, step),
                 .expected = "every rank of the job",
                 .got = str_cat("nothing from ", who, " for ", ms, " ms"),
                 .fix = str_cat("read the log of ", who,
                                "; it ended, is stopped or takes another "
                                "path through the program")});
}

Status check_reduction(const ShardLayout& layout, int rank, int size, size_t parts) {
  const bool fits = layout.ranks() == size && layout.nodes(rank).size() == parts;
  if (fits) return {};
  return Status(ErrorCode::kInvalidArgument,
                {.what = "the arrays of a reduction do not fit the division of shards",
                 .where = str_cat("rank ", rank),
                 .expected = layout.ranks() == size ? str_cat(layout.nodes(rank).size(), " arrays")
                                                    : str_cat("a layout for ", size, " ranks"),
                 .got = str_cat(parts, " arrays, a layout for ", layout.ranks(), " ranks"),
                 .fix = "give one array for each of layout.nodes(rank)"});
}

}  // namespace collective_detail

}  // namespace fleet::transport

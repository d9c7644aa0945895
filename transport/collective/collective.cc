#include "transport/collective/collective.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "base/strings.h"
#include "transport/collective/sums_impl.h"

namespace fleet::transport {
namespace {

using collective_detail::Addend;
using collective_detail::Form;

std::vector<ShardRange> nodes_of(int ranks, int shards) {
  std::vector<ShardRange> nodes;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = maximal_nodes(owned_shards(rank, ranks, shards), shards);
    nodes.insert(nodes.end(), own.begin(), own.end());
  }
  return nodes;
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
    sum_arrays(layout.sum(), type, parts, out, count);
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

template <class T>
void multiply_as(void* values, size_t count, double factor) {
  auto* typed = static_cast<T*>(values);
  for (size_t i = 0; i < count; ++i) typed[i] = static_cast<T>(typed[i] * static_cast<T>(factor));
}

}  // namespace

size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
      return 2;
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
  }
  return 0;
}

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBFloat16:
      return "bfloat16";
  }
  return "?";
}

void sum_arrays(const TreeSum& order, ElementType type, std::span<const void* const> arrays,
                void* out, size_t count) {
  std::vector<Addend> addends;
  addends.reserve(arrays.size());
  for (const void* array : arrays) addends.push_back({array, Form::kGiven});
  collective_detail::add_up(order, type, addends, out, Form::kGiven, count);
}

void CollectiveCommunicator::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void CollectiveCommunicator::clear(void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

void CollectiveCommunicator::sum(const TreeSum& order, ElementType type,
                                 std::span<const void* const> arrays, void* out, size_t count) {
  sum_arrays(order, type, arrays, out, count);
}

void CollectiveCommunicator::multiply(ElementType type, void* values, size_t count, double factor) {
  if (type == ElementType::kFloat32) multiply_as<float>(values, count, factor);
  if (type == ElementType::kFloat64) multiply_as<double>(values, count, factor);
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

namespace {

// One gather of texts that are padded to the longest.
Result<std::vector<std::string>> gather_padded(CollectiveCommunicator& communicator,
                                               std::string_view mine,
                                               std::span<const uint64_t> lengths, size_t longest,
                                               CollectiveLabel label, TimePoint deadline) {
  std::string all(longest * lengths.size(), '\0');
  const auto bytes = std::as_writable_bytes(std::span(all));
  const auto own = bytes.subspan(longest * static_cast<size_t>(communicator.rank()), longest);
  if (!mine.empty()) std::memcpy(own.data(), mine.data(), mine.size());
  auto status = communicator.all_gather(own, bytes, label).wait(deadline);
  if (!status.ok()) return status;
  std::vector<std::string> texts;
  for (size_t i = 0; i < lengths.size(); ++i) texts.push_back(all.substr(i * longest, lengths[i]));
  return texts;
}

// A broadcast of each text, all under way together.
Result<std::vector<std::string>> broadcast_each(CollectiveCommunicator& communicator,
                                                std::string_view mine,
                                                std::span<const uint64_t> lengths,
                                                CollectiveLabel label, TimePoint deadline) {
  std::vector<std::string> texts(lengths.size());
  std::vector<CollectiveToken> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto root = static_cast<int>(i);
    texts[i] = root == communicator.rank() ? std::string(mine) : std::string(lengths[i], '\0');
    if (texts[i].empty()) continue;
    tokens.push_back(
        communicator.broadcast(std::as_writable_bytes(std::span(texts[i])), root, label));
  }
  for (auto& token : tokens) {
    auto status = token.wait(deadline);
    if (!status.ok()) return status;
  }
  return texts;
}

}  // namespace

Result<std::vector<std::string>> all_gather_texts(CollectiveCommunicator& communicator,
                                                  std::string_view mine, CollectiveLabel label,
                                                  TimePoint deadline) {
  std::vector<uint64_t> lengths(static_cast<size_t>(communicator.size()));
  uint64_t& own = lengths[static_cast<size_t>(communicator.rank())];
  own = mine.size();
  auto status = communicator
                    .all_gather(std::as_bytes(std::span(&own, 1)),
                                std::as_writable_bytes(std::span(lengths)), label)
                    .wait(deadline);
  if (!status.ok()) return status;
  // Padding is cheap where lengths are alike or small, and not where one rank says everything.
  constexpr uint64_t kCheapBytes = 64 * 1024;
  const uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const uint64_t total = std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
  const bool pads = longest * lengths.size() <= std::max(2 * total, kCheapBytes);
  return pads ? gather_padded(communicator, mine, lengths, longest, label, deadline)
              : broadcast_each(communicator, mine, lengths, label, deadline);
}

namespace collective_detail {

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

#include "transport/nccl/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "transport/collective/point_to_point.h"

namespace fleet::transport {
namespace {

constexpr size_t kElementsPerPiece = 64;  // pieces are multiples of so many
constexpr Duration kLook = std::chrono::microseconds(20);

// The elements of an array that a rank adds up in a round.
struct Slice {
  size_t begin = 0;
  size_t count = 0;
};

struct Rounds {
  size_t rounds = 0;
  std::function<Slice(int rank, size_t round)> slice;
};

struct Sum {
  const ShardLayout& layout;
  ElementType type;
  std::vector<const std::byte*> parts;

  std::vector<ShardRange> nodes() const {
    std::vector<ShardRange> all;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const auto own = layout.nodes(rank);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  size_t width() const { return transport::size_of(type); }
};

Slice within(size_t begin, size_t count, size_t end) {
  const size_t first = std::min(begin, end);
  return {first, std::min(begin + count, end) - first};
}

// The library's communicator and its stream, shared with operations. Used by one thread, except for
// fail(), broken() and awaited().
class Group {
 public:
  Group(std::shared_ptr<Nccl> nccl, std::unique_ptr<DeviceQueue> queue, int rank, int size,
        NcclOptions options)
      : rank_(rank),
        size_(size),
        options_(options),
        nccl_(std::move(nccl)),
        queue_(std::move(queue)) {}

  ~Group() {
    if (comm_ == nullptr) return;
    if (is_broken() || nccl_->destroy(comm_) != NcclResult::kSuccess) give_up();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const NcclOptions& options() const { return options_; }
  DeviceQueue& queue() { return *queue_; }

  void connect(const NcclId& id, TimePoint deadline) {
    const TimePoint begin = steady_clock().now();
    const NcclResult made = nccl_->init(comm_, size_, id, rank_);
    if (settle("ncclCommInitRankConfig", made, deadline)) return;
    collective_detail::missing_ranks("start of NCCL", {.phase = "connect"}, rank_, {},
                                     steady_clock().now() - begin)
        .throw_if_error();
  }

  // ---- what is put on the stream

  void send(const std::byte* from, size_t bytes, int to) {
    if (bytes > 0) check("ncclSend", nccl_->send(from, bytes, to, comm_, queue_->stream()));
  }
  void receive(std::byte* to, size_t bytes, int from) {
    if (bytes > 0) check("ncclRecv", nccl_->receive(to, bytes, from, comm_, queue_->stream()));
  }
  // `calls` are done together; a failure in them ends the group first, so that the library is not
  // left inside of it.
  template <class Calls>
  void together(const Calls& calls) {
    check("ncclGroupStart", nccl_->group_start());
    try {
      calls();
    } catch (const Error&) {
      (void)nccl_->group_end();
      throw;
    }
    check("ncclGroupEnd", nccl_->group_end());
  }
  void all_reduce(const void* from, void* to, size_t count, ElementType type) {
    check("ncclAllReduce", nccl_->all_reduce(from, to, count, type, comm_, queue_->stream()));
  }
  void reduce_scatter(const void* from, void* to, size_t count, ElementType type) {
    check("ncclReduceScatter",
          nccl_->reduce_scatter(from, to, count, type, comm_, queue_->stream()));
  }
  void broadcast(std::span<std::byte> bytes, int root) {
    check("ncclBroadcast",
          nccl_->broadcast(bytes.data(), bytes.size(), root, comm_, queue_->stream()));
  }
  void all_gather(const std::byte* from, std::byte* to, size_t bytes) {
    check("ncclAllGather", nccl_->all_gather(from, to, bytes, comm_, queue_->stream()));
  }

  // ---- failures

  bool is_broken() const { return is_broken_.load(std::memory_order_acquire); }
  Status broken() const {
    const std::lock_guard guard(mutex_);
    return broken_;
  }
  void fail(const Status& reason) {
    const std::lock_guard guard(mutex_);
    if (is_broken()) return;
    broken_ = reason;
    is_broken_.store(true, std::memory_order_release);
  }
  // By the thread that uses it: after it, the device uses no memory of operations any more.
  void give_up() {
    if (comm_ == nullptr) return;
    (void)nccl_->revoke(comm_);
    (void)nccl_->abort(std::exchange(comm_, nullptr));
    queue_->finish();
  }
  // An error that the library found later; throws it.
  void look() {
    NcclResult state = NcclResult::kSuccess;
    const NcclResult asked = nccl_->async_error(comm_, state);
    if (asked != NcclResult::kSuccess) state = asked;
    if (state == NcclResult::kSuccess || state == NcclResult::kInProgress) return;
    throw_failed("an operation of NCCL", state);
  }

  void set_awaited(std::string what) {
    const std::lock_guard guard(mutex_);
    awaited_ = std::move(what);
  }
  std::string awaited() const {
    const std::lock_guard guard(mutex_);
    return awaited_;
  }

 private:
  void check(const char* call, NcclResult result) {
    const TimePoint deadline = steady_clock().now() + options_.late_limit;
    if (settle(call, result, deadline)) return;
    throw_error(ErrorCode::kPeerLost, {.what = "another rank does not come to an operation of NCCL",
                                       .where = str_cat(call, ", rank ", rank_),
                                       .expected = "all ranks of the job",
                                       .got = "a call that still waits for a connection",
                                       .fix = "read the logs of the other ranks"});
  }

  // False when the call is still under way at the deadline. Inside of a group nothing is under way.
  bool settle(const char* call, NcclResult result, TimePoint deadline) {
    while (result == NcclResult::kInProgress && comm_ != nullptr) {
      if (is_broken()) broken().throw_if_error();
      if (steady_clock().now() >= deadline) return false;
      std::this_thread::sleep_for(kLook);
      const NcclResult asked = nccl_->async_error(comm_, result);
      if (asked != NcclResult::kSuccess) result = asked;
    }
    if (result != NcclResult::kSuccess) throw_failed(call, result);
    return true;
  }

  [[noreturn]] void throw_failed(const char* call, NcclResult result) const {
    const bool remote = result == NcclResult::kRemoteError || result == NcclResult::kSystemError;
    throw_error(remote ? ErrorCode::kPeerLost : ErrorCode::kInternal,
                {.what = str_cat("NCCL failed: ", nccl_->explain(result, comm_)),
                 .where = str_cat(call, ", rank ", rank_),
                 .expected = "ncclSuccess",
                 .got = std::string(name_of(result)),
                 .fix = remote ? "read the log of the rank that ended or stands still"
                               : "run with NCCL_DEBUG=INFO to see what the library says"});
  }

  const int rank_;
  const int size_;
  const NcclOptions options_;
  std::shared_ptr<Nccl> nccl_;
  std::unique_ptr<DeviceQueue> queue_;
  ncclComm* comm_ = nullptr;
  mutable std::mutex mutex_;
  Status broken_;
  std::string awaited_;
  std::atomic<bool> is_broken_{false};
};

// Adds up along the shard tree, round by round: what a rank adds up comes from all ranks.
class OrderedSum {
 public:
  OrderedSum(Group& group, const Sum& sum, const Rounds& rounds)
      : group_(group), sum_(sum), rounds_(rounds), nodes_(sum.nodes()) {
    size_t most = 0;
    for (size_t round = 0; round < rounds_.rounds; ++round) {
      most = std::max(most, own(round).count);
    }
    scratch_bytes_ = most * sum_.width();
    if (scratch_bytes_ > 0) {
      scratch_ = group_.queue().allocate(scratch_bytes_ * sum_.layout.parts());
    }
  }

  // The round's slice of this rank, at `out`.
  void put(size_t round, std::byte* out) {
    group_.together([&] { exchange(round); });
    const Slice slice = own(round);
    if (slice.count == 0) return;
    const int rank = group_.rank();
    std::vector<const void*> arrays(sum_.layout.parts());
    for (size_t k = 0; k < arrays.size(); ++k) arrays[k] = place(k);
    for (size_t k = 0; k < sum_.parts.size(); ++k) {
      arrays[sum_.layout.first_part(rank) + k] = sum_.parts[k] + slice.begin * sum_.width();
    }
    group_.queue().sum(nodes_, sum_.type, arrays, out, slice.count);
  }

  // All sums of the round at all ranks, in the array `out`.
  void tell(size_t round, std::byte* out) {
    const Slice mine = own(round);
    group_.together([&] {
      for (int other = 0; other < group_.size(); ++other) {
        if (other == group_.rank()) continue;
        const Slice theirs = rounds_.slice(other, round);
        group_.send(out + mine.begin * sum_.width(), mine.count * sum_.width(), other);
        group_.receive(out + theirs.begin * sum_.width(), theirs.count * sum_.width(), other);
      }
    });
  }

 private:
  Slice own(size_t round) const { return rounds_.slice(group_.rank(), round); }
  std::byte* place(size_t part) const { return scratch_.data() + part * scratch_bytes_; }

  void exchange(size_t round) {
    const size_t mine = own(round).count * sum_.width();
    for (int other = 0; other < group_.size(); ++other) {
      if (other == group_.rank()) continue;
      const Slice theirs = rounds_.slice(other, round);
      for (const std::byte* part : sum_.parts) {
        group_.send(part + theirs.begin * sum_.width(), theirs.count * sum_.width(), other);
      }
      const size_t first = sum_.layout.first_part(other);
      for (size_t k = 0; k < sum_.layout.nodes(other).size(); ++k) {
        group_.receive(place(first + k), mine, other);
      }
    }
  }

  Group& group_;
  const Sum& sum_;
  const Rounds& rounds_;
  const std::vector<ShardRange> nodes_;
  size_t scratch_bytes_ = 0;  // of each part
  Buffer scratch_;
};

class Operation : public CollectiveOperation {
 public:
  Operation(std::shared_ptr<Group> group, std::unique_ptr<DeviceEvent> event, OperationId id,
            CollectiveLabel label)
      : group_(std::move(group)), event_(std::move(event)), id_(id), label_(label) {}

  bool test() override {
    if (done_ || group_->is_broken()) return true;
    try {
      // In this order: work that failed is done as well.
      const bool ended = event_->done();
      group_->look();
      done_ = ended;
    } catch (const Error& error) {
      group_->fail(Status(error.code(), error.text()));
    }
    return done_ || group_->is_broken();
  }

  Status wait(TimePoint deadline) override {
    const TimePoint begin = steady_clock().now();
    group_->set_awaited(id_.to_string());
    while (!test()) {
      const TimePoint now = steady_clock().now();
      if (now >= deadline) {
        group_->fail(collective_detail::missing_ranks(name_of(id_.kind), label_, group_->rank(), {},
                                                      now - begin));
      } else {
        std::this_thread::sleep_for(kLook);
      }
    }
    group_->set_awaited({});
    if (done_) return {};
    group_->give_up();
    return group_->broken();
  }

 private:
  std::shared_ptr<Group> group_;
  std::unique_ptr<DeviceEvent> event_;
  OperationId id_;
  CollectiveLabel label_;
  bool done_ = false;
};

class NcclCommunicator : public CollectiveCommunicator {
 public:
  explicit NcclCommunicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel label) override {
    auto checked = collective_detail::check_reduction(layout, rank(), size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    return start(CollectiveKind::kAllReduce, type, count, label, [&] {
      const Sum sum = sum_of(layout, type, parts);
      if (group_->options().ordered) return ordered_all_reduce(sum, bytes_of(out), count);
      group_->all_reduce(own_sum(sum, bytes_of(out), count), out, count, type);
    });
  }

  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    auto checked = collective_detail::check_reduction(layout, rank(), size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    return start(CollectiveKind::kReduceScatter, type, total, label, [&] {
      const Sum sum = sum_of(layout, type, parts);
      const bool equal =
          std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
      if (group_->options().ordered || !equal) {
        return ordered_reduce_scatter(sum, bytes_of(out), counts);
      }
      const Buffer whole =
          parts.size() > 1 ? group_->queue().allocate(total * sum.width()) : Buffer();
      group_->reduce_scatter(own_sum(sum, whole.data(), total), out, counts[0], type);
    });
  }

  CollectiveToken broadcast(std::span<std::byte> bytes, int root, CollectiveLabel label) override {
    return start(CollectiveKind::kBroadcast, {}, bytes.size(), label,
                 [&] { group_->broadcast(bytes, root); });
  }

  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel label) override {
    return start(CollectiveKind::kAllGather, {}, mine.size(), label,
                 [&] { group_->all_gather(mine.data(), all.data(), mine.size()); });
  }

  CollectiveToken barrier(CollectiveLabel label) override {
    return start(CollectiveKind::kBarrier, {}, 0, label, [&] {
      const Buffer all = group_->queue().allocate(static_cast<size_t>(size()));
      group_->all_gather(all.data() + rank(), all.data(), 1);
    });
  }

  std::string awaited() const override { return group_->awaited(); }

  Buffer allocate(size_t bytes) override { return group_->queue().allocate(bytes); }

  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    between_compute([&](DeviceQueue& queue) { queue.copy(to, from, bytes); });
  }
  void clear(void* to, size_t bytes) override {
    if (bytes == 0) return;
    between_compute([&](DeviceQueue& queue) { queue.clear(to, bytes); });
  }
  void sum(const TreeSum&, ElementType type, std::span<const void* const> arrays, void* out,
           size_t count) override {
    between_compute([&](DeviceQueue& queue) {
      queue.sum(single_shards(arrays.size()), type, arrays, out, count);
    });
  }
  void multiply(ElementType type, void* values, size_t count, double factor) override {
    if (count == 0) return;
    between_compute([&](DeviceQueue& queue) { queue.multiply(type, values, count, factor); });
  }

  void abort(Status reason) override { group_->fail(reason); }

 private:
  static std::vector<ShardRange> single_shards(size_t count) {
    std::vector<ShardRange> shards;
    shards.reserve(count);
    for (int i = 0; i < static_cast<int>(count); ++i) shards.push_back({i, i + 1});
    return shards;
  }

  template <class Put>
  void between_compute(const Put& put) {
    group_->queue().follow_compute();
    put(group_->queue());
    group_->queue().lead_compute();
  }

  static std::byte* bytes_of(void* memory) { return static_cast<std::byte*>(memory); }

  static Sum sum_of(const ShardLayout& layout, ElementType type,
                    std::span<const void* const> parts) {
    Sum sum{layout, type, {}};
    sum.parts.reserve(parts.size());
    for (const void* part : parts) sum.parts.push_back(static_cast<const std::byte*>(part));
    return sum;
  }

  // Puts the sum of this rank's parts into `memory` when there are several of them.
  const std::byte* own_sum(const Sum& sum, std::byte* memory, size_t count) {
    if (sum.parts.size() == 1) return sum.parts.front();
    const std::vector<const void*> arrays(sum.parts.begin(), sum.parts.end());
    group_->queue().sum(single_shards(arrays.size()), sum.type, arrays, memory, count);
    return memory;
  }

  size_t piece_of(const Sum& sum, size_t count) const {
    const size_t most = group_->options().piece_bytes / sum.width();
    const size_t piece = std::min(most, count) + kElementsPerPiece - 1;
    return std::max(kElementsPerPiece, piece / kElementsPerPiece * kElementsPerPiece);
  }

  void ordered_all_reduce(const Sum& sum, std::byte* out, size_t count) {
    const auto ranks = static_cast<size_t>(size());
    const size_t piece = piece_of(sum, (count + ranks - 1) / ranks);
    const Rounds rounds{(count + piece * ranks - 1) / (piece * ranks), [=](int rank, size_t round) {
                          const size_t begin = (round * ranks + static_cast<size_t>(rank)) * piece;
                          return within(begin, piece, count);
                        }};
    OrderedSum ordered(*group_, sum, rounds);
    for (size_t round = 0; round < rounds.rounds; ++round) {
      ordered.put(round, out + rounds.slice(rank(), round).begin * sum.width());
      ordered.tell(round, out);
    }
  }

  void ordered_reduce_scatter(const Sum& sum, std::byte* out, std::span<const size_t> counts) {
    const size_t most = *std::max_element(counts.begin(), counts.end());
    const size_t piece = piece_of(sum, most);
    const Rounds rounds{(most + piece - 1) / piece, [=](int rank, size_t round) {
                          const size_t first =
                              std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
                          const size_t count = counts[static_cast<size_t>(rank)];
                          const Slice slice = within(round * piece, piece, count);
                          return Slice{first + slice.begin, slice.count};
                        }};
    OrderedSum ordered(*group_, sum, rounds);
    const size_t first = rounds.slice(rank(), 0).begin;
    for (size_t round = 0; round < rounds.rounds; ++round) {
      ordered.put(round, out + (rounds.slice(rank(), round).begin - first) * sum.width());
    }
  }

  template <class Put>
  CollectiveToken start(CollectiveKind kind, ElementType type, uint64_t count,
                        CollectiveLabel label, const Put& put) {
    if (group_->is_broken()) return failed();
    const OperationId id{operations_++, kind, type, count};
    try {
      group_->queue().follow_compute();
      put();
      return CollectiveToken(
          std::make_shared<Operation>(group_, group_->queue().mark(), id, label));
    } catch (const Error& error) {
      group_->fail(Status(error.code(), error.text()));
      return failed();
    }
  }

  CollectiveToken failed() {
    group_->give_up();
    return CollectiveToken(group_->broken());
  }

  std::shared_ptr<Group> group_;
  uint64_t operations_ = 0;
};

}  // namespace

Result<std::unique_ptr<CollectiveCommunicator>> make_nccl_communicator(
    std::shared_ptr<Nccl> nccl, std::unique_ptr<DeviceQueue> queue, const NcclId& id, int rank,
    int ranks, TimePoint deadline, NcclOptions options) {
  auto group = std::make_shared<Group>(std::move(nccl), std::move(queue), rank, ranks, options);
  try {
    group->connect(id, deadline);
  } catch (const Error& error) {
    group->give_up();
    return Status(error.code(), error.text());
  }
  return std::unique_ptr<CollectiveCommunicator>(
      std::make_unique<NcclCommunicator>(std::move(group)));
}

}  // namespace fleet::transport

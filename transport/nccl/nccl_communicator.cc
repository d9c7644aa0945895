#include "transport/nccl/nccl_communicator.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "transport/collective/point_to_point.h"
#include "transport/nccl/nccl_group.h"

namespace fleet::transport {
namespace {

constexpr size_t kElementsPerPiece = 64;  // pieces are multiples of so many

// The elements of an array that a rank adds up in a round.
struct Slice {
  size_t begin = 0;
  size_t count = 0;
};

struct Rounds {
  size_t rounds = 0;
  std::function<Slice(int rank, size_t round)> slice;
};

// The parts of a sum: those of this rank, and the nodes that every rank of its group gives, which
// together are a tree.
struct Sum {
  ElementType type;
  std::vector<const std::byte*> parts;
  std::vector<std::vector<ShardRange>> nodes;

  size_t width() const { return transport::size_of(type); }
  size_t first_part(int rank) const {
    size_t first = 0;
    for (int other = 0; other < rank; ++other) first += nodes[static_cast<size_t>(other)].size();
    return first;
  }
  std::vector<ShardRange> all_nodes() const {
    std::vector<ShardRange> all;
    for (const auto& own : nodes) all.insert(all.end(), own.begin(), own.end());
    return all;
  }
};

Slice within(size_t begin, size_t count, size_t end) {
  const size_t first = std::min(begin, end);
  return {first, std::min(begin + count, end) - first};
}

std::vector<ShardRange> shards_of_groups(const ShardLayout& layout,
                                         const std::vector<int>& groups) {
  std::vector<ShardRange> shards;
  shards.reserve(groups.size());
  int first = 0;
  for (const int ranks : groups) {
    shards.push_back({layout.range(first).begin, layout.range(first + ranks - 1).end});
    first += ranks;
  }
  return shards;
}

// Where a ring's stream comes to an operation, and where it is done with it.
struct Passage {
  std::unique_ptr<DeviceEvent> before;
  std::unique_ptr<DeviceEvent> after;
  std::shared_ptr<Passage> previous;  // of the ring; null once it is over

  bool over() {
    if (!after->done()) return false;
    previous = nullptr;
    return true;
  }
  // False while nothing but this rank's device keeps it from the operation.
  bool begun() {
    if (previous != nullptr && !previous->over()) return previous->begun();
    previous = nullptr;
    return before->done();
  }
};

// The library's communicators of one stream, with those of groups where there are any.
struct Ring {
  std::shared_ptr<DeviceQueue> queue;
  std::shared_ptr<Passage> last;  // of its operations
  std::unique_ptr<NcclGroup> whole;
  std::unique_ptr<NcclGroup> inner;  // of this rank's group
  std::unique_ptr<NcclGroup> outer;  // of the first ranks of groups, at those

  template <class Call>
  void each(const Call& call) const {
    for (NcclGroup* group : {whole.get(), inner.get(), outer.get()}) {
      if (group != nullptr) call(*group);
    }
  }
};

// All rings, shared with operations. Used by one thread, except for its health.
class Rings {
 public:
  Rings(NcclOptions options, std::shared_ptr<DeviceQueue> arrays)
      : options_(options), health_(std::make_shared<NcclHealth>()), arrays_(std::move(arrays)) {}
  ~Rings() {
    if (health_->is_broken()) give_up();
  }
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  NcclHealth& health() { return *health_; }
  const std::shared_ptr<NcclHealth>& shared_health() const { return health_; }
  const NcclOptions& options() const { return options_; }
  DeviceQueue& arrays() { return *arrays_; }
  // Operations refer to rings: none is added once there are some.
  Ring& add() { return rings_.emplace_back(); }
  size_t size() const { return rings_.size(); }
  Ring& at(size_t number) { return rings_[number % rings_.size()]; }

  // After it, the device uses no memory of operations any more, unless it stands still.
  void give_up() {
    for (const Ring& ring : rings_) ring.each([](NcclGroup& group) { group.stop(); });
    const TimePoint deadline = steady_clock().now() + options_.end_limit;
    for (const Ring& ring : rings_) finish(ring.queue, deadline);
    finish(arrays_, deadline);
  }
  bool has_ranks() const {
    return std::all_of(rings_.begin(), rings_.end(),
                       [](const Ring& ring) { return ring.whole->has_ranks(); });
  }

 private:
  // A queue that does not come to its end is kept for ever: to drop it would wait for it.
  void finish(const std::shared_ptr<DeviceQueue>& queue, TimePoint deadline) {
    if (std::find(standing_.begin(), standing_.end(), queue.get()) != standing_.end()) return;
    try {
      const auto event = queue->mark();
      while (!event->done()) {
        if (steady_clock().now() >= deadline) {
          standing_.push_back(queue.get());
          return keep(queue);
        }
        std::this_thread::sleep_for(kNcclLook);
      }
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): what failed does nothing more
    }
  }
  static void keep(const std::shared_ptr<DeviceQueue>& queue) {
    static std::mutex mutex;
    static auto* const kKept = new std::vector<std::shared_ptr<DeviceQueue>>;
    const std::lock_guard guard(mutex);
    kKept->push_back(queue);
  }

  NcclOptions options_;
  std::shared_ptr<NcclHealth> health_;
  std::shared_ptr<DeviceQueue> arrays_;  // of what callers do with arrays themselves
  std::vector<Ring> rings_;
  std::vector<const DeviceQueue*> standing_;  // their device stands still
};

// Adds up along the shard tree, round by round: what a rank adds up comes from all ranks.
class OrderedSum {
 public:
  OrderedSum(NcclGroup& group, const Sum& sum, const Rounds& rounds)
      : group_(group), sum_(sum), rounds_(rounds), nodes_(sum.all_nodes()) {
    size_t most = 0;
    for (size_t round = 0; round < rounds_.rounds; ++round) {
      most = std::max(most, own(round).count);
    }
    scratch_bytes_ = most * sum_.width();
    if (scratch_bytes_ > 0) {
      scratch_ = group_.queue().allocate(scratch_bytes_ * nodes_.size());
    }
  }

  // The round's slice of this rank, at `out`.
  void put(size_t round, std::byte* out) {
    group_.together([&] { exchange(round); });
    const Slice slice = own(round);
    if (slice.count == 0) return;
    const int rank = group_.rank();
    std::vector<const void*> arrays(nodes_.size());
    for (size_t k = 0; k < arrays.size(); ++k) arrays[k] = place(k);
    for (size_t k = 0; k < sum_.parts.size(); ++k) {
      arrays[sum_.first_part(rank) + k] = sum_.parts[k] + slice.begin * sum_.width();
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
      const size_t first = sum_.first_part(other);
      for (size_t k = 0; k < sum_.nodes[static_cast<size_t>(other)].size(); ++k) {
        group_.receive(place(first + k), mine, other);
      }
    }
  }

  NcclGroup& group_;
  const Sum& sum_;
  const Rounds& rounds_;
  const std::vector<ShardRange> nodes_;
  size_t scratch_bytes_ = 0;  // of each part
  Buffer scratch_;
};

class Operation : public CollectiveOperation {
 public:
  Operation(std::shared_ptr<Rings> rings, Ring& ring, OperationId id, CollectiveLabel label)
      : rings_(std::move(rings)), ring_(ring), passage_(ring.last), id_(id), label_(label) {}

  bool begun() override {
    if (done_ || rings_->health().is_broken()) return true;
    try {
      return passage_->begun();
    } catch (const Error& error) {
      rings_->health().fail(Status(error.code(), error.text()));
      return true;
    }
  }

  bool lead_compute() override {
    if (rings_->health().is_broken()) return false;
    try {
      return done_ || passage_->after->lead_compute();
    } catch (const Error& error) {
      rings_->health().fail(Status(error.code(), error.text()));
      return false;
    }
  }

  bool test() override {
    if (done_ || rings_->health().is_broken()) return true;
    try {
      // In this order: work that failed is done as well.
      const bool ended = passage_->over();
      ring_.each([](NcclGroup& group) { group.look(); });
      done_ = ended;
    } catch (const Error& error) {
      rings_->health().fail(Status(error.code(), error.text()));
    }
    return done_ || rings_->health().is_broken();
  }

  Status wait(TimePoint deadline) override {
    const TimePoint begin = steady_clock().now();
    NcclHealth& health = rings_->health();
    health.set_awaited(id_.to_string());
    while (!test()) {
      const TimePoint now = steady_clock().now();
      if (now >= deadline) {
        health.fail(collective_detail::missing_ranks(name_of(id_.kind), label_, ring_.whole->rank(),
                                                     {}, now - begin));
      } else {
        std::this_thread::sleep_for(kNcclLook);
      }
    }
    health.set_awaited({});
    if (done_) return {};
    rings_->give_up();
    return health.broken();
  }

 private:
  std::shared_ptr<Rings> rings_;
  Ring& ring_;
  std::shared_ptr<Passage> passage_;
  OperationId id_;
  CollectiveLabel label_;
  bool done_ = false;
};

class NcclCommunicator : public CollectiveCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<Rings> rings, NcclRanks ranks)
      : rings_(std::move(rings)), ranks_(std::move(ranks)) {}

  int rank() const override { return ranks_.rank; }
  int size() const override { return ranks_.size; }
  Rings& rings() const { return *rings_; }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel label) override {
    auto checked = collective_detail::check_reduction(layout, rank(), size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    return start(CollectiveKind::kAllReduce, type, count, label, [&](Ring& ring) {
      const Sum sum = sum_of(layout, type, parts);
      if (ring.inner && may_group(layout, type)) {
        return grouped_all_reduce(ring, layout, sum, bytes_of(out), count);
      }
      sum_up(*ring.whole, sum, bytes_of(out), count);
    });
  }

  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    auto checked = collective_detail::check_reduction(layout, rank(), size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    return start(CollectiveKind::kReduceScatter, type, total, label, [&](Ring& ring) {
      NcclGroup& group = *ring.whole;
      const Sum sum = sum_of(layout, type, parts);
      const bool equal =
          std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
      if (rings_->options().ordered || !equal) {
        return ordered_reduce_scatter(group, sum, bytes_of(out), counts);
      }
      const Buffer whole =
          parts.size() > 1 ? group.queue().allocate(total * sum.width()) : Buffer();
      group.reduce_scatter(own_sum(group, sum, whole.data(), total), out, counts[0], type);
    });
  }

  CollectiveToken broadcast(std::span<std::byte> bytes, int root, CollectiveLabel label) override {
    return start(CollectiveKind::kBroadcast, {}, bytes.size(), label,
                 [&](Ring& ring) { ring.whole->broadcast(bytes, root); });
  }

  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel label) override {
    return start(CollectiveKind::kAllGather, {}, mine.size(), label,
                 [&](Ring& ring) { ring.whole->all_gather(mine.data(), all.data(), mine.size()); });
  }

  CollectiveToken barrier(CollectiveLabel label) override {
    return start(CollectiveKind::kBarrier, {}, 0, label, [&](Ring& ring) {
      const Buffer all = ring.whole->queue().allocate(static_cast<size_t>(size()));
      ring.whole->all_gather(all.data() + rank(), all.data(), 1);
    });
  }

  std::string awaited() const override { return rings_->health().awaited(); }

  Buffer allocate(size_t bytes) override { return queue().allocate(bytes); }

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

  void abort(Status reason) override { rings_->health().fail(reason); }

 private:
  static std::vector<ShardRange> single_shards(size_t count) {
    std::vector<ShardRange> shards;
    shards.reserve(count);
    for (int i = 0; i < static_cast<int>(count); ++i) shards.push_back({i, i + 1});
    return shards;
  }

  template <class Put>
  void between_compute(const Put& put) {
    queue().follow_compute();
    put(queue());
    queue().lead_compute();
  }

  DeviceQueue& queue() { return rings_->arrays(); }

  static std::byte* bytes_of(void* memory) { return static_cast<std::byte*>(memory); }

  static Sum sum_of(const ShardLayout& layout, ElementType type,
                    std::span<const void* const> parts) {
    Sum sum{type, {}, {}};
    sum.parts.reserve(parts.size());
    for (const void* part : parts) sum.parts.push_back(static_cast<const std::byte*>(part));
    sum.nodes.reserve(static_cast<size_t>(layout.ranks()));
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      const auto own = layout.nodes(rank);
      sum.nodes.emplace_back(own.begin(), own.end());
    }
    return sum;
  }

  // What this rank's group adds up: its shards are a tree of their own.
  Sum inner_sum(const ShardLayout& layout, const Sum& sum) const {
    const auto [group, first] = ranks_.place();
    const auto ranks = static_cast<size_t>(ranks_.groups[static_cast<size_t>(group)]);
    const auto begin = sum.nodes.begin() + first;
    Sum inner{sum.type, sum.parts, {begin, begin + static_cast<ptrdiff_t>(ranks)}};
    const int shards_before = layout.range(first).begin;
    for (auto& own : inner.nodes) {
      for (ShardRange& node : own) node = {node.begin - shards_before, node.end - shards_before};
    }
    return inner;
  }
  // What the first ranks add up: the sums of groups.
  Sum outer_sum(const ShardLayout& layout, ElementType type, const std::byte* of_group) const {
    Sum outer{type, {of_group}, {}};
    for (const ShardRange& shards : shards_of_groups(layout, ranks_.groups)) {
      outer.nodes.push_back({shards});
    }
    return outer;
  }
  bool may_group(const ShardLayout& layout, ElementType type) const {
    if (!rings_->options().ordered) return true;
    return size_of(type) >= sizeof(float) && groups_are_nodes(layout, ranks_.groups);
  }
  void grouped_all_reduce(Ring& ring, const ShardLayout& layout, const Sum& sum, std::byte* out,
                          size_t count) {
    sum_up(*ring.inner, inner_sum(layout, sum), out, count);
    if (ring.outer) sum_up(*ring.outer, outer_sum(layout, sum.type, out), out, count);
    ring.inner->broadcast({out, count * sum.width()}, 0);
  }
  // The sum over the ranks of the group, at all of them.
  void sum_up(NcclGroup& group, const Sum& sum, std::byte* out, size_t count) {
    if (rings_->options().ordered) return ordered_all_reduce(group, sum, out, count);
    group.all_reduce(own_sum(group, sum, out, count), out, count, sum.type);
  }

  // Puts the sum of this rank's parts into `memory` when there are several of them.
  static const std::byte* own_sum(NcclGroup& group, const Sum& sum, std::byte* memory,
                                  size_t count) {
    if (sum.parts.size() == 1) return sum.parts.front();
    const std::vector<const void*> arrays(sum.parts.begin(), sum.parts.end());
    group.queue().sum(single_shards(arrays.size()), sum.type, arrays, memory, count);
    return memory;
  }

  size_t piece_of(const Sum& sum, size_t count) const {
    const size_t most = rings_->options().piece_bytes / sum.width();
    const size_t piece = std::min(most, count) + kElementsPerPiece - 1;
    return std::max(kElementsPerPiece, piece / kElementsPerPiece * kElementsPerPiece);
  }

  void ordered_all_reduce(NcclGroup& group, const Sum& sum, std::byte* out, size_t count) const {
    const auto ranks = static_cast<size_t>(group.size());
    const size_t piece = piece_of(sum, (count + ranks - 1) / ranks);
    const Rounds rounds{(count + piece * ranks - 1) / (piece * ranks), [=](int rank, size_t round) {
                          const size_t begin = (round * ranks + static_cast<size_t>(rank)) * piece;
                          return within(begin, piece, count);
                        }};
    OrderedSum ordered(group, sum, rounds);
    for (size_t round = 0; round < rounds.rounds; ++round) {
      ordered.put(round, out + rounds.slice(group.rank(), round).begin * sum.width());
      ordered.tell(round, out);
    }
  }

  void ordered_reduce_scatter(NcclGroup& group, const Sum& sum, std::byte* out,
                              std::span<const size_t> counts) const {
    const size_t most = *std::max_element(counts.begin(), counts.end());
    const size_t piece = piece_of(sum, most);
    const Rounds rounds{(most + piece - 1) / piece, [=](int rank, size_t round) {
                          const size_t first =
                              std::accumulate(counts.begin(), counts.begin() + rank, size_t{0});
                          const size_t count = counts[static_cast<size_t>(rank)];
                          const Slice slice = within(round * piece, piece, count);
                          return Slice{first + slice.begin, slice.count};
                        }};
    OrderedSum ordered(group, sum, rounds);
    const size_t first = rounds.slice(rank(), 0).begin;
    for (size_t round = 0; round < rounds.rounds; ++round) {
      ordered.put(round, out + (rounds.slice(rank(), round).begin - first) * sum.width());
    }
  }

  // All ranks call operations in the same order, so they put each on the same ring.
  template <class Put>
  CollectiveToken start(CollectiveKind kind, ElementType type, uint64_t count,
                        CollectiveLabel label, const Put& put) {
    NcclHealth& health = rings_->health();
    if (health.is_broken()) return failed();
    const OperationId id{operations_++, kind, type, count};
    Ring& ring = rings_->at(id.sequence);
    try {
      ring.queue->follow_compute();
      auto before = ring.queue->mark();
      put(ring);
      ring.last = passage(ring, std::move(before));
      return CollectiveToken(std::make_shared<Operation>(rings_, ring, id, label));
    } catch (const Error& error) {
      health.fail(Status(error.code(), error.text()));
      return failed();
    }
  }

  static std::shared_ptr<Passage> passage(const Ring& ring, std::unique_ptr<DeviceEvent> before) {
    const bool follows = ring.last != nullptr && !ring.last->over();
    return std::make_shared<Passage>(
        Passage{std::move(before), ring.queue->mark(), follows ? ring.last : nullptr});
  }

  CollectiveToken failed() {
    rings_->give_up();
    return CollectiveToken(rings_->health().broken());
  }

  std::shared_ptr<Rings> rings_;
  NcclRanks ranks_;
  uint64_t operations_ = 0;
};

// Makes the rings of one rank, in the same order at all ranks.
struct Connecting {
  std::shared_ptr<Nccl> nccl;
  const NcclRanks& ranks;
  std::shared_ptr<Rings> rings;
  TimePoint deadline;

  std::unique_ptr<NcclGroup> group(const std::shared_ptr<DeviceQueue>& queue, int rank, int size) {
    const NcclGroupOptions options{.late_limit = rings->options().late_limit,
                                   .keeps_ranks = rings->options().keeps_ranks,
                                   .end_limit = rings->options().end_limit};
    return std::make_unique<NcclGroup>(nccl, queue, rings->shared_health(), rank, size, options);
  }

  // `before` is the ring that is shrunk, if there is one.
  void add(NcclRing from, Ring* before, const std::vector<int>& lost) {
    Ring& ring = rings->add();
    ring.queue = std::move(from.queue);
    const auto& queue = ring.queue;
    ring.whole = group(queue, ranks.rank, ranks.size);
    if (before != nullptr) {
      ring.whole->connect_without(*before->whole, lost, deadline);
    } else {
      ring.whole->connect(from.id, deadline);
    }
    if (!ranks.groups.empty()) {
      const auto [number, first] = ranks.place();
      const int own = ranks.rank - first;
      ring.inner = group(queue, own, ranks.groups[static_cast<size_t>(number)]);
      ring.inner->connect(from.inner, deadline);
      if (own == 0) {
        ring.outer = group(queue, number, static_cast<int>(ranks.groups.size()));
        ring.outer->connect(from.outer, deadline);
      }
    }
  }
};

}  // namespace

NcclRanks::Place NcclRanks::place() const {
  Place place;
  while (place.first + groups[static_cast<size_t>(place.group)] <= rank) {
    place.first += groups[static_cast<size_t>(place.group++)];
  }
  return place;
}

bool groups_are_nodes(const ShardLayout& layout, const std::vector<int>& groups) {
  const auto ranges = shards_of_groups(layout, groups);
  return std::all_of(ranges.begin(), ranges.end(), [&](const ShardRange& shards) {
    return is_tree_node(shards, layout.shards());
  });
}

bool has_nccl_ranks(const CollectiveCommunicator& failed, size_t rings) {
  const auto* const communicator = dynamic_cast<const NcclCommunicator*>(&failed);
  if (communicator == nullptr) return false;
  Rings& all = communicator->rings();
  return all.health().is_broken() && all.size() == rings && all.has_ranks();
}

Result<std::unique_ptr<CollectiveCommunicator>> make_nccl_communicator(
    std::shared_ptr<Nccl> nccl, std::unique_ptr<DeviceQueue> arrays, std::vector<NcclRing> rings,
    const NcclRanks& ranks, TimePoint deadline, NcclOptions options, const NcclLoss& loss) {
  auto made = std::make_shared<Rings>(options, std::move(arrays));
  auto* const failed = dynamic_cast<NcclCommunicator*>(loss.failed);
  Connecting connecting{std::move(nccl), ranks, made, deadline};
  try {
    for (size_t i = 0; i < rings.size(); ++i) {
      Ring* const before = failed == nullptr ? nullptr : &failed->rings().at(i);
      connecting.add(std::move(rings[i]), before, loss.lost);
    }
  } catch (const Error& error) {
    const Status why(error.code(), error.text());
    made->health().fail(why);
    return why;
  }
  return std::unique_ptr<CollectiveCommunicator>(
      std::make_unique<NcclCommunicator>(std::move(made), ranks));
}

}  // namespace fleet::transport

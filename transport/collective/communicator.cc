#include "transport/collective/communicator.h"

#include <algorithm>
#include <numeric>

#include "transport/collective/engine_impl.h"

namespace fleet::transport {
namespace {

using namespace collective_detail;

class Communicator : public CollectiveCommunicator {
 public:
  Communicator(std::unique_ptr<PointToPoint> peers, const CommunicatorOptions& options)
      : engine_(std::make_shared<Engine>(std::move(peers))), options_(options) {}

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel label) override {
    auto checked = check_reduction(layout, rank(), size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    return start(CollectiveKind::kAllReduce, type, count, label,
                 [&](Group& group, const OperationId& id) -> std::unique_ptr<Machine> {
                   auto reduction = make_reduction(layout, type, parts, out, count);
                   const size_t bytes = count * transport::size_of(type);
                   if (is_readable(bytes)) {
                     return reading_all_reduce(group, id, std::move(reduction),
                                               options_.reading_piece_bytes);
                   }
                   if (is_small(layout, bytes)) {
                     return few() ? direct_all_reduce(group, id, reduction)
                                  : doubling_all_reduce(group, id, std::move(reduction));
                   }
                   if (is_middle(bytes)) {
                     return halving_all_reduce(group, id, std::move(reduction));
                   }
                   return piecewise_all_reduce(group, id, std::move(reduction), pieces());
                 });
  }

  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    auto checked = check_reduction(layout, rank(), size(), parts.size());
    if (!checked.ok()) return CollectiveToken(std::move(checked));
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    return start(CollectiveKind::kReduceScatter, type, total, label,
                 [&](Group& group, const OperationId& id) {
                   auto reduction = make_reduction(layout, type, parts, out, total);
                   return is_middle(total * transport::size_of(type))
                              ? halving_reduce_scatter(group, id, std::move(reduction), counts)
                              : direct_reduce_scatter(group, id, reduction, counts);
                 });
  }

  CollectiveToken broadcast(std::span<std::byte> bytes, int root, CollectiveLabel label) override {
    return start(CollectiveKind::kBroadcast, {}, bytes.size(), label,
                 [&](Group& group, const OperationId& id) {
                   return tree_broadcast(group, id, bytes, root, pieces());
                 });
  }

  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel label) override {
    return start(CollectiveKind::kAllGather, {}, mine.size(), label,
                 [&](Group& group, const OperationId& id) {
                   return is_middle(all.size()) ? doubling_all_gather(group, id, mine, all)
                                                : direct_all_gather(group, id, mine, all);
                 });
  }

  CollectiveToken barrier(CollectiveLabel label) override {
    return start(CollectiveKind::kBarrier, {}, 0, label, [&](Group& group, const OperationId& id) {
      return few() ? direct_all_gather(group, id, {}, {}) : doubling_all_gather(group, id, {}, {});
    });
  }

  std::string awaited() const override { return engine_->awaited(); }

  Buffer allocate(size_t bytes) override {
    Buffer readable = engine_->memory() ? engine_->memory()->allocate(bytes) : Buffer();
    return readable ? readable : Buffer(bytes);
  }

  void abort(Status reason) override { engine_->fail(reason); }

 private:
  bool few() const { return size() <= options_.direct_ranks; }
  bool is_small(const ShardLayout& layout, size_t bytes) const {
    return few() ? bytes * layout.parts() <= options_.direct_limit_bytes
                 : bytes <= options_.doubling_limit_bytes;
  }
  bool is_readable(size_t bytes) const {
    return engine_->memory() != nullptr && bytes > options_.reading_limit_bytes;
  }
  // So few bytes that each rank's share of them would be a small message.
  bool is_middle(size_t bytes) const {
    return !few() && bytes < options_.least_piece_bytes * static_cast<size_t>(size());
  }
  Pieces pieces() const {
    return {options_.piece_bytes, static_cast<size_t>(std::max(1, options_.window))};
  }

  static Reduction make_reduction(const ShardLayout& layout, ElementType type,
                                  std::span<const void* const> parts, void* out, size_t count) {
    Reduction reduction{layout, type, {}, static_cast<std::byte*>(out), count};
    reduction.parts.reserve(parts.size());
    for (const void* part : parts) reduction.parts.push_back(static_cast<const std::byte*>(part));
    return reduction;
  }

  template <class Make>
  CollectiveToken start(CollectiveKind kind, ElementType type, uint64_t count,
                        CollectiveLabel label, const Make& make) {
    if (auto status = engine_->broken(); !status.ok()) return CollectiveToken(std::move(status));
    auto pending = engine_->start(kind, type, count, label, make);
    if (pending->done) return {};
    return CollectiveToken(std::make_shared<EngineOperation>(engine_, std::move(pending)));
  }

  std::shared_ptr<Engine> engine_;
  CommunicatorOptions options_;
};

}  // namespace

std::unique_ptr<CollectiveCommunicator> make_communicator(std::unique_ptr<PointToPoint> peers,
                                                          CommunicatorOptions options) {
  if (peers->size() == 1) return single_communicator();
  return std::make_unique<Communicator>(std::move(peers), options);
}

}  // namespace fleet::transport

// Collective operations among the workers of a job, on tensors in host memory: the interface, the
// communicator of size one, and the rule by which contributions are added.
//
// A collective operation is called by all ranks in the same order with matching arguments. Each
// call starts the operation and returns a token; it advances while some token of the communicator
// is tested or waited for. Buffers belong to the operation until it is done. A communicator is
// used by one thread at a time, except for abort().
//
// A failure (a rank did not come in time, an abort) breaks the communicator: this operation, those
// under way and all later ones fail with the same status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/shard_tree.h"
#include "base/status.h"

namespace fleet::transport {

// kFloat16 and kBFloat16 are 16-bit words (base/numbers/half.h). A reduction adds them up in float,
// along the tree, and rounds once at its end.
enum class ElementType : uint8_t { kFloat32, kFloat64, kInt64, kFloat16, kBFloat16 };
size_t size_of(ElementType type);
std::string_view name_of(ElementType type);  // "float32"

// For messages: what the program was doing. The text must outlive the operation.
struct CollectiveLabel {
  std::string_view phase = "collective";
  int64_t step = -1;
};

// Which nodes of the shard tree (base/shard_tree.h) each rank contributes: the largest nodes
// inside its contiguous range of shards. Immutable.
class ShardLayout {
 public:
  // `shards` >= `ranks`, divided by owned_shards().
  ShardLayout(int ranks, int shards);

  int ranks() const { return static_cast<int>(first_part_.size()) - 1; }
  int shards() const { return shards_; }
  ShardRange range(int rank) const { return owned_shards(rank, ranks(), shards_); }
  // The nodes of a rank, in shard order; it gives one array for each.
  std::span<const ShardRange> nodes(int rank) const;
  // Where a rank's nodes begin among the nodes of all ranks, in rank order.
  size_t first_part(int rank) const { return first_part_[static_cast<size_t>(rank)]; }
  size_t parts() const { return nodes_.size(); }
  // Adds the arrays of all nodes up, one for each, in rank order.
  const TreeSum& sum() const { return sum_; }

 private:
  int shards_;
  std::vector<size_t> first_part_;
  std::vector<ShardRange> nodes_;
  TreeSum sum_;
};

// One operation under way. Implemented by communicators.
class CollectiveOperation {
 public:
  virtual ~CollectiveOperation() = default;
  // Advances the communicator; true when this operation is done, well or not.
  virtual bool test() = 0;
  // False while it waits for nothing but this rank's own device, for what was put there before it.
  virtual bool begun() { return true; }
  // What the calling thread puts on its device next begins when this is done, well or not; wait()
  // tells which. False where the device cannot wait for it.
  virtual bool lead_compute() { return false; }
  // Blocks until it is done. After the deadline the communicator is broken; the status names the
  // ranks that did not come.
  virtual Status wait(TimePoint deadline) = 0;
};

// A handle to an operation; a default-made one is done. A token may be dropped: its operation goes
// on.
class [[nodiscard]] CollectiveToken {
 public:
  CollectiveToken() = default;
  explicit CollectiveToken(Status failed) : failed_(std::move(failed)) {}
  explicit CollectiveToken(std::shared_ptr<CollectiveOperation> operation)
      : operation_(std::move(operation)) {}

  bool test() { return !operation_ || operation_->test(); }
  bool begun() { return !operation_ || operation_->begun(); }
  bool lead_compute() { return operation_ && operation_->lead_compute(); }
  Status wait(TimePoint deadline) { return operation_ ? operation_->wait(deadline) : failed_; }

 private:
  std::shared_ptr<CollectiveOperation> operation_;
  Status failed_;
};

class CollectiveCommunicator {
 public:
  virtual ~CollectiveCommunicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // out[i] = the tree's sum of all parts of all ranks at i, for i < count; the same bits at every
  // rank, however many ranks there are. `parts` are this rank's arrays, one for each of
  // layout.nodes(rank()); `out` may be one of them. The layout must outlive the operation.
  virtual CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                                     std::span<const void* const> parts, void* out, size_t count,
                                     CollectiveLabel label) = 0;
  // As all_reduce, but rank r gets only its piece of the sum: counts[r] elements after those of
  // the ranks before it. `counts` has one entry for each rank; `out` must not overlap the parts.
  virtual CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                         std::span<const void* const> parts, void* out,
                                         std::span<const size_t> counts, CollectiveLabel label) = 0;
  // Root's bytes at every rank.
  virtual CollectiveToken broadcast(std::span<std::byte> bytes, int root,
                                    CollectiveLabel label) = 0;
  // all = every rank's bytes, by rank; each gives as many as the others. `mine` may be the place
  // of this rank in `all`.
  virtual CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                                     CollectiveLabel label) = 0;
  // Done when every rank has come here.
  virtual CollectiveToken barrier(CollectiveLabel label) = 0;

  // The operation that a thread waits for in this communicator just now, as text such as
  // "operation 17, all_reduce of 1024 float32"; empty when none does. From any thread.
  virtual std::string awaited() const { return {}; }

  // Memory in which arrays of reductions best lie: where ranks can read each other's memory, they
  // do not copy such arrays first. It may outlive the communicator.
  virtual Buffer allocate(size_t bytes) { return Buffer(bytes); }

  // ---- what callers do with arrays in the memory that the communicator takes, which is a device's
  // where its operations are. They come after what the calling thread put on the device before, and
  // before what it puts there next.
  virtual void copy(void* to, const void* from, size_t bytes);
  virtual void clear(void* to, size_t bytes);
  // As sum_arrays below, along the tree of so many single shards.
  virtual void sum(const TreeSum& order, ElementType type, std::span<const void* const> arrays,
                   void* out, size_t count);
  // float32 and float64: values[i] times the factor, rounded to their type first.
  virtual void multiply(ElementType type, void* values, size_t count, double factor);

  // Breaks the communicator with this status, which says why, for example because the coordinator
  // lost a rank; waiting calls return it. From any thread.
  virtual void abort(Status reason) = 0;
};

// The communicator of a job with one process: sums its own parts and copies nothing else.
std::unique_ptr<CollectiveCommunicator> single_communicator();

// out = the sum of `arrays` in this order, as a rank adds up nodes before it contributes them:
// 16-bit types are rounded here. `out` may be one of them, but must not overlap one in part.
void sum_arrays(const TreeSum& order, ElementType type, std::span<const void* const> arrays,
                void* out, size_t count);

// The texts of all ranks, by rank; they may differ in length. All ranks call it; it blocks.
Result<std::vector<std::string>> all_gather_texts(CollectiveCommunicator& communicator,
                                                  std::string_view mine, CollectiveLabel label,
                                                  TimePoint deadline);

// For implementations.
namespace collective_detail {

// "rank 2 did not come to all_reduce …" with its phase and step.
Status missing_ranks(std::string_view operation, CollectiveLabel label, int rank,
                     std::span<const int> missing, Duration waited);

// An error when the arguments of a reduction do not fit the layout.
Status check_reduction(const ShardLayout& layout, int rank, int size, size_t parts);

}  // namespace collective_detail

}  // namespace fleet::transport

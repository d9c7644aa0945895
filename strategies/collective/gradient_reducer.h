// Sums gradients over all logical shards of a step, fused into buckets while backward runs.
//
// Gradients come one after the other in the order in which backward makes them, once for each
// logical shard of this rank; the order, sizes and types are the same for every shard and rank.
// Consecutive gradients of one type share a bucket until it is full. With the last local shard's
// gradients, a full bucket's sum over this rank's nodes of the shard tree is on its way to the
// other ranks, while backward goes on. What comes out has the bits of the tree over all shards
// (base/shard_tree.h), whatever the number of ranks and the size of buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

struct GradientReducerOptions {
  // A bucket is full, and starts, when it has so many bytes. Equal at all ranks.
  size_t bucket_bytes = size_t{1} << 20;
  // kFloat16 or kBFloat16: what float32 gradients are rounded to before they leave, each node of
  // the shard tree that a rank owns by itself; they are added up in float, and the sum is rounded
  // again. Half the bytes; all ranks get the same bits, but other numbers of ranks other ones.
  std::optional<transport::ElementType> wire = std::nullopt;
  // How long one wait may take.
  Duration timeout = std::chrono::seconds(180);
  // Told before (true) and after (false) the training thread waits for other ranks.
  std::function<void(bool waits)> on_wait = nullptr;
  // What sums are multiplied with when they come; asked once a step, before the first is handed
  // out. None: they stay as they are.
  std::function<double()> factor = nullptr;
};

// One reduction of a step: consecutive gradients of one type.
struct ReductionShape {
  transport::ElementType type{};
  size_t count = 0;
  bool at_once = false;  // apart from buckets

  bool operator==(const ReductionShape&) const = default;
};

// Waits for the token as the options say; throws PeerError.
void wait_for(transport::CollectiveToken& token, const GradientReducerOptions& options);

// Used by one thread. Gradients are in the memory that the communicator takes. Errors are thrown:
// PeerError when a rank does not come, ProgramError when the gradients of two shards differ.
class GradientReducer {
 public:
  // Communicator and layout must outlive it.
  GradientReducer(transport::CollectiveCommunicator& communicator,
                  const transport::ShardLayout& layout, GradientReducerOptions options = {});

  void begin_step(uint64_t step);
  uint64_t step() const { return step_; }

  // The next gradient of a local shard, counted from 0; shards come one after the other. `in` is
  // free again on return, unless this is the last shard; then `in`, and `out`, where the sum goes,
  // belong to the reducer until wait(), lead() or finish(). They may be the same. The result is the
  // gradient's number in this step.
  size_t add(int local_shard, transport::ElementType type, const void* in, void* out, size_t count);

  // Adds up at once what the local shards give, apart from the buckets; those that have begun start
  // before. `out` may be one of them. For all local shards together.
  void sum_at_once(std::span<const double* const> shards, double* out, size_t count);

  // Makes progress; true when the sum of that gradient has come. It does not start anything.
  bool test(size_t gradient);
  // Waits until the sum of that gradient is in its `out`; starts its bucket, full or not.
  void wait(size_t gradient);
  // The same, but what the calling thread puts on the device next waits instead of the host, where
  // the communicator is one of devices that can.
  void lead(size_t gradient);
  // The same of all gradients that were added.
  void lead_all();
  // Waits for the sums that lead() has handed on.
  void wait_for_leads();
  // Waits for all gradients of the step.
  void finish();

  // The reductions of the last step, in order.
  std::vector<ReductionShape> shapes() const;
  // Those of a step with these gradients, none of which is waited for before all have come. What
  // is summed at once has a reduction of its own.
  static std::vector<ReductionShape> shapes_of(std::span<const ReductionShape> gradients,
                                               const GradientReducerOptions& options);

  // Counts begin_step(); gradient numbers of an earlier count mean nothing any more.
  uint64_t generation() const { return generation_; }
  // Buckets that have been started in this step.
  size_t started_buckets() const { return started_; }

 private:
  struct Slot {
    size_t bucket;
    size_t offset;  // bytes
    size_t count;
    transport::ElementType type;
    void* out = nullptr;
  };
  struct Bucket {
    transport::ElementType type{};
    size_t bytes = 0;
    size_t first_slot = 0;
    size_t slots = 0;
    bool full = false;
    bool started = false;
    bool delivered = false;  // or will be, when the device comes to it
    bool ended = false;      // and the host has seen it
    bool at_once = false;
    std::vector<Buffer> shards;  // what each local shard gave
    const void* lone = nullptr;  // the only gradient of the only shard, used where it is
    Buffer wire;                 // what leaves, where it is rounded
    transport::CollectiveToken token;
  };

  bool single_shard() const { return local_shards_ == 1; }
  Slot& place(transport::ElementType type, size_t count);
  void check_same(const Slot& slot, transport::ElementType type, size_t count, int shard) const;
  Bucket& next_bucket(transport::ElementType type);
  void begin_bucket(transport::ElementType type, size_t bytes);
  void store(Bucket& bucket, const Slot& slot, int local_shard, const void* in);
  void start(Bucket& bucket);
  std::vector<const void*> node_sums(Bucket& bucket, size_t count);
  void round_for_wire(Bucket& bucket, std::vector<const void*>& parts, size_t count) const;
  bool is_rounded(const Bucket& bucket) const;
  void start_to(size_t bucket);
  void lead(Bucket& bucket);
  void end(Bucket& bucket);
  void deliver(Bucket& bucket);
  void adjust(transport::ElementType type, void* out, size_t count);
  void poll();

  transport::CollectiveCommunicator& communicator_;
  const transport::ShardLayout& layout_;
  GradientReducerOptions options_;
  int local_shards_;
  std::vector<TreeSum> node_sums_;  // one for each of this rank's nodes
  uint64_t step_ = 0;
  uint64_t generation_ = 0;
  std::vector<size_t> next_slots_;  // by local shard
  size_t started_ = 0;
  std::optional<double> factor_;  // of this step
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;  // the first used_buckets_ are this step's
  size_t used_buckets_ = 0;
  size_t next_end_ = 0;
};

}  // namespace fleet::strategies

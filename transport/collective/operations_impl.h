// The state machines of collective operations, over point-to-point messages. Internal to
// transport_collective.
//
// A machine sends its first messages when it is made; advance() moves it on. Machines are made,
// called and destroyed with the back end's lock held. What their messages read and write is the
// caller's memory or scratch.
//
// Two ranks meet each other's messages of an operation in the order in which they send and receive
// them, so every machine sends to a rank in the order in which that one receives, whatever comes
// first from others.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "transport/collective/exchange_plan_impl.h"
#include "transport/collective/point_to_point.h"
#include "transport/collective/sums_impl.h"

namespace fleet::transport::collective_detail {

// Shares of an array end where a line of memory does.
inline constexpr size_t kElementsPerLine = 16;

// As many whole units as `value` takes.
inline size_t whole(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Memory for contributions of others, or for them to read, reused from one operation to the next.
class ScratchPool {
 public:
  // Of that memory, if there is any.
  explicit ScratchPool(PeerMemory* memory = nullptr) : memory_(memory) {}
  // At least `bytes`, aligned to 64, uninitialised.
  Buffer take(size_t bytes);
  void give_back(Buffer buffer);
  // All memory that was ever taken.
  const std::vector<std::shared_ptr<const void>>& owners() const { return owners_; }

 private:
  PeerMemory* memory_;
  std::vector<Buffer> free_;  // by size
  std::vector<std::shared_ptr<const void>> owners_;
};

// Memory of a pool, given back at its end.
class Scratch {
 public:
  Scratch() = default;
  Scratch(ScratchPool& pool, size_t bytes) : pool_(&pool), buffer_(pool.take(bytes)) {}
  Scratch(Scratch&& other) noexcept { *this = std::move(other); }
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~Scratch() {
    if (buffer_) pool_->give_back(std::move(buffer_));
  }
  std::byte* data() const { return buffer_.data(); }

 private:
  ScratchPool* pool_ = nullptr;
  Buffer buffer_;
};

// What all operations of a communicator share.
struct Group {
  PointToPoint& peers;
  const int rank = peers.rank();
  const int size = peers.size();
  ScratchPool scratch = ScratchPool();
  ScratchPool readable = ScratchPool(peers.peer_memory());
  std::map<int, ExchangePlan> plans = {};  // by number of shards

  const ExchangePlan& plan(const ShardLayout& layout);
};

class Machine {
 public:
  virtual ~Machine() = default;
  // Moves on as far as it can; true when the operation is done.
  virtual bool advance() = 0;
  // Ranks whose messages it waits for.
  virtual void waits_for(std::vector<int>& ranks) = 0;
};

struct Reduction {
  const ShardLayout& layout;
  ElementType type;
  std::vector<const std::byte*> parts;
  std::byte* out;
  size_t count;  // elements
};

// Where the pieces of large data end, and how many rounds of pieces are under way.
struct Pieces {
  size_t bytes;
  size_t window;
};

// Every rank sends its contribution to every other, and sums all of them itself: N - 1 messages,
// one delay.
std::unique_ptr<Machine> direct_all_reduce(Group& group, const OperationId& id,
                                           const Reduction& reduction);

// Pairs of ranks exchange what they hold, over twice the distance each time (recursive doubling),
// and every rank sums along the tree: at most log2(N) + 1 messages.
std::unique_ptr<Machine> doubling_all_reduce(Group& group, const OperationId& id,
                                             Reduction reduction);

// The same pairs exchange halves of what is left to sum, then of the result: 2 log2(N) + 1
// messages, and twice the bytes of the array whatever N is, as far as ranges are aligned.
std::unique_ptr<Machine> halving_all_reduce(Group& group, const OperationId& id,
                                            Reduction reduction);

// The first half of that: each rank is left with its slice. `counts` by rank.
std::unique_ptr<Machine> halving_reduce_scatter(Group& group, const OperationId& id,
                                                Reduction reduction,
                                                std::span<const size_t> counts);

// Piece p is summed by rank p mod N and sent to all: the bytes of a ring, and as many messages as
// the array has pieces, twice, with at most N to a round.
std::unique_ptr<Machine> piecewise_all_reduce(Group& group, const OperationId& id,
                                              Reduction reduction, Pieces pieces);

// The same pieces, over memory that ranks read where it lies: every rank tells where its arrays
// are, sums its pieces from there, and reads the sums of others. Messages say only how far it is.
std::unique_ptr<Machine> reading_all_reduce(Group& group, const OperationId& id,
                                            Reduction reduction, size_t piece_bytes);

// Every rank sends each other rank that one's slice, and sums its own. `counts` by rank.
std::unique_ptr<Machine> direct_reduce_scatter(Group& group, const OperationId& id,
                                               const Reduction& reduction,
                                               std::span<const size_t> counts);

// A binomial tree for what fits into one piece: the last rank has it after log2(N) messages. More
// goes piece by piece down a binary tree, of which no rank sends it more than twice, or, when there
// are more pieces than ranks, along a chain, where each sends it once.
std::unique_ptr<Machine> tree_broadcast(Group& group, const OperationId& id,
                                        std::span<std::byte> bytes, int root, Pieces pieces);

// Every rank sends its bytes to every other: N - 1 messages, one delay.
std::unique_ptr<Machine> direct_all_gather(Group& group, const OperationId& id,
                                           std::span<const std::byte> mine,
                                           std::span<std::byte> all);

// Every rank sends what it has to the one 1, 2, 4 … before it (Bruck et al., IEEE TPDS 1997):
// log2(N) messages, rounded up. Without bytes it is the dissemination barrier (Hensgen, Finkel,
// Manber, IJPP 1988).
std::unique_ptr<Machine> doubling_all_gather(Group& group, const OperationId& id,
                                             std::span<const std::byte> mine,
                                             std::span<std::byte> all);

}  // namespace fleet::transport::collective_detail

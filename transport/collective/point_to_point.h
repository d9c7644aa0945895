// Messages between the ranks of a job: what a back end (MPI, sockets, memory) gives, and what the
// collective algorithms are written over, once for all of them.
//
// Used by one thread at a time, with lock() held where the back end has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/status.h"
#include "transport/collective/collective.h"

namespace fleet::transport {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kBroadcast,
  kAllGather,
  kBarrier
};
std::string_view name_of(CollectiveKind kind);

// What every message of an operation says of it, so that ranks which call different operations
// learn it. `count` is in elements where the kind has a type, else in bytes.
struct OperationId {
  uint64_t sequence = 0;  // the communicator's n-th operation
  CollectiveKind kind = CollectiveKind::kBarrier;
  ElementType type = ElementType::kFloat32;
  uint64_t count = 0;

  bool operator==(const OperationId&) const = default;
  std::string to_string() const;  // "operation 17, all_reduce of 1024 float32"
};

// Sequence numbers from here on are none of the program's operations, but a roll call beside them.
// A rank sends such messages to ranks that may never receive them, and that is no mistake.
constexpr uint64_t kRollCallSequence = uint64_t{1} << 62;

// An error that names two ranks and the operations which they call in the same place; `theirs` is
// what is known of the peer's.
Status different_operations(const OperationId& ours, int rank, const std::string& theirs, int peer);

// Messages of one operation, tested together. Memory belongs to them until test() has said true.
class MessageSet {
 public:
  virtual ~MessageSet() = default;
  // The n-th send of an operation to a rank meets that rank's n-th receive of the operation from
  // here, whichever sets they are in. No bytes are a message, too.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  // True when all are done; then forgets them. Throws PeerError when one cannot be done.
  virtual bool test() = 0;
  // Adds the ranks whose messages have not come; where all have, those that have not taken ours.
  virtual void unfinished(std::vector<int>& ranks) = 0;
};

// Memory of each rank that the others read where it lies, where a back end has such.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // Of this rank, for the others to read; aligned to 4 KiB, kept by its handles, which may outlive
  // this. Empty when there is no more.
  virtual Buffer allocate(size_t bytes) = 0;
  // Where these bytes lie, as the others call it; none unless all are in such memory.
  virtual std::optional<uint64_t> place_of(std::span<const std::byte> bytes) const = 0;
  // Bytes of another rank at a place that it told; null unless all are inside its memory. They may
  // change at any time, whatever was agreed.
  virtual const std::byte* at(int rank, uint64_t place, size_t bytes) const = 0;
};

class PointToPoint {
 public:
  virtual ~PointToPoint() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Null where ranks cannot read each other's memory; the same at every rank.
  virtual PeerMemory* peer_memory() { return nullptr; }
  // Outlived by this.
  virtual std::unique_ptr<MessageSet> messages(const OperationId& operation) = 0;
  // Held around calls of this and of its message sets by who calls them; empty where none is
  // needed.
  virtual std::unique_lock<std::mutex> lock() { return {}; }
  // Moves what can be moved without waiting, where message sets do not do it themselves. Throws
  // PeerError when the ranks cannot go on, such as when two of them call different operations.
  virtual void poll() {}
  // Changes whenever messages have come or gone.
  virtual uint64_t progress() const = 0;
  // Passes the time of a thread that waits for messages and for which nothing has moved for
  // `idle`: looks again at once, gives the core away, or sleeps, at most until `deadline`. Called
  // without lock().
  virtual void rest(Duration idle, TimePoint deadline) = 0;
  // Called once when the communicator breaks, from any thread and without lock(): a back end may
  // tell the other ranks.
  virtual void failed(const Status& reason) { (void)reason; }
  // Called once when operations under way will never end; `memory` is what their messages read and
  // write, and is kept as long as the back end may do so.
  virtual void give_up(std::vector<std::shared_ptr<const void>> memory) = 0;
};

}  // namespace fleet::transport

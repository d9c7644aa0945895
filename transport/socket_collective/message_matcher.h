// Messages of other ranks, matched with the receives of this one. No I/O: whoever has the
// connections tells what comes, and reads payloads to where this says.
//
// The n-th message of an operation from a rank meets the n-th receive of the operation from there.
// A message may come before its receive is posted, before its operation has begun here, or again
// (after a reconnect): it is taken in once.
//
// Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "transport/collective/point_to_point.h"
#include "transport/session/session.h"

namespace fleet::transport {

struct MessageId {
  OperationId operation;
  uint32_t number = 0;  // among those of the operation from one rank to another, from 0
  uint64_t bytes = 0;
};

// The answer that a request of a rank waits for.
struct DueAnswer {
  int rank = 0;
  uint64_t request = 0;
};

class MessageMatcher {
 public:
  // `early_bytes`: how much of each rank is kept at most for want of a receive.
  MessageMatcher(int rank, int size, uint64_t early_bytes);

  // What a message counts for while it is kept: its bytes, and what is remembered of it.
  static uint64_t early_cost(uint64_t bytes) { return bytes + kEntryBytes; }

  // ---- this rank's calls

  // A message set of the operation begins, or ends. An error that names both when a rank has told
  // of another operation in this place.
  Status begin(const OperationId& operation);
  void end(uint64_t sequence);
  // The number of the next message of the operation to a rank.
  uint32_t next_send(uint64_t sequence, int to);
  // The next receive of the operation from a rank; its number. `open` is counted up now, and down
  // when the bytes are in the memory, perhaps at once. An error when the message has another size.
  Result<uint32_t> post(uint64_t sequence, int from, MutableBytes memory, size_t& open);
  bool is_done(uint64_t sequence, int from, uint32_t number) const;
  // Nobody wants it any more. True when its bytes are being read just now: they must not go to the
  // memory of the receive.
  bool abandon(uint64_t sequence, int from, uint32_t number);

  // ---- what comes from other ranks

  // An error that names both sides when the message does not fit what this rank calls.
  Status compare(int from, const MessageId& id);
  // Where the payload of a message goes. `asked_for`: it was offered, and the offer answered.
  // Refused when a rank sends more than it was told that it may.
  PayloadTarget target(int from, const MessageId& id, bool asked_for);
  // The message is in, with its bytes where target() has said.
  Status arrived(int from, const MessageId& id, uint64_t request);
  // A message is there to be asked for: the answer is due when its receive has been posted.
  Status offered(int from, const MessageId& id, uint64_t request);
  // The connection has ended: what was being read from there comes again.
  void interrupted(int from);

  // Answers that have become due since the last call.
  std::vector<DueAnswer> take_answers() { return std::exchange(answers_, {}); }
  // Requests that have no answer yet; they are forgotten.
  std::vector<DueAnswer> take_waiting();

  uint64_t received() const { return received_; }
  uint64_t early_bytes(int from) const { return early_[index(from)]; }
  // Receives that wait for a rank.
  size_t waiting_for(int from) const { return posted_[index(from)]; }

 private:
  static constexpr uint64_t kEntryBytes = 256;
  // Messages of a rank that were told of and have no receive.
  static constexpr size_t kMostWaiting = 65536;
  // Operations without message sets that are remembered, so that what comes again is known.
  static constexpr uint64_t kRemembered = 256;

  struct Slot {
    MutableBytes memory;
    size_t* open = nullptr;
    Buffer early;
    uint64_t bytes = 0;
    uint64_t request = 0;  // that waits for an answer; 0: none
    bool posted = false;
    bool told = false;     // the other side has said its size
    bool reading = false;  // its payload, now
    bool whole = false;    // kept, every byte of it
    bool done = false;
  };
  // The messages of an operation between this rank and another.
  struct Exchange {
    uint32_t sent = 0;
    uint32_t posted = 0;
    uint32_t first = 0;  // number of the first slot; those before are done
    std::vector<Slot> slots;
    std::optional<OperationId> told;
  };
  struct Operation {
    OperationId id;
    bool begun = false;
    size_t sets = 0;
    std::vector<Exchange> with;  // by rank
  };
  struct Place {
    uint64_t sequence = 0;
    uint32_t number = 0;
  };

  static size_t index(int rank) { return static_cast<size_t>(rank); }
  Operation& operation(uint64_t sequence);
  bool is_forgotten(uint64_t sequence) const;
  void forget_old();
  Slot& slot_at(int from, Exchange& exchange, uint32_t number);
  static Slot* find(Exchange& exchange, uint32_t number);
  // The slot, or null when the message was taken in before.
  Result<Slot*> locate(int from, const MessageId& id);
  Status keep(int from, Slot& slot, uint64_t bytes);
  void drop_early(int from, Slot& slot);
  void finish(int from, Slot& slot, uint64_t request);
  static void drop_done(Exchange& exchange);
  Status different_size(const Operation& operation, int from, uint64_t theirs, uint64_t ours) const;

  int rank_;
  int size_;
  uint64_t most_early_;
  std::map<uint64_t, Operation> operations_;  // by sequence
  uint64_t newest_ = 0;                       // of the program's operations that have begun
  std::vector<uint64_t> early_;               // by rank: what is kept
  std::vector<size_t> unposted_;              // by rank: slots without a receive
  std::vector<size_t> posted_;                // by rank: receives that wait
  std::vector<std::optional<Place>> reading_;
  std::vector<DueAnswer> answers_;
  uint64_t received_ = 0;
};

}  // namespace fleet::transport

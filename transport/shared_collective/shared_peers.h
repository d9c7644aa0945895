// Messages of collective operations between ranks of one machine, through memory that they share.
//
// A rank has a ring of slots for each other one in its arena (arena.h), which it fills and the
// other empties. A small message is one slot, a large one as many as it takes, one after the other.
// What does not fit into a ring now waits in this rank's queue for it, in order.
//
// Messages that come early are those of sockets (message_matcher.h, socket_peers.h): a rank grants
// each other one so many bytes for messages without receives; what is beyond is offered first, and
// sent when it was asked for.
//
// Why this cannot deadlock: whatever is in a slot can be taken out at once, since a message has its
// receive or granted memory, and offers and questions have no bytes. So a ring is emptied whenever
// its reader looks, whatever it waits for, and what is queued behind it moves on. A receive that is
// posted therefore meets its message, or the offer, and asks; the question is queued behind
// finitely many slots. Ranks only have to look, and who waits does.
//
// A waiting rank looks again at once for a moment, where ranks have a core each, then offers its
// core in between, and then sleeps on its bell, which whoever fills or empties a slot for it rings.
//
// Nothing here notices the end of another process: whoever does breaks the communicator from
// another thread, which ends a sleep. The first that fails writes down why, for the others to read.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/collective/point_to_point.h"
#include "transport/shared_collective/arena.h"
#include "transport/shared_collective/arena_heap.h"
#include "transport/socket_collective/message_matcher.h"

namespace fleet::transport {

class SharedPeers final : public PointToPoint {
 public:
  // `own` is this rank's arena, `arenas` are those of all ranks.
  SharedPeers(int rank, std::shared_ptr<Arena> own,
              std::vector<std::shared_ptr<const Arena>> arenas);
  // The others learn that it is gone.
  ~SharedPeers() override;
  SharedPeers(const SharedPeers&) = delete;
  SharedPeers& operator=(const SharedPeers&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  PeerMemory* peer_memory() override { return heap_bytes() > 0 ? &heap_ : nullptr; }
  std::unique_ptr<MessageSet> messages(const OperationId& operation) override;
  void poll() override;
  uint64_t progress() const override { return matcher_.received() + moved_; }
  void rest(Duration idle, TimePoint deadline) override;
  // From any thread. The others can read why, and a thread in rest() wakes up.
  void failed(const Status& reason) override;
  void give_up(std::vector<std::shared_ptr<const void>> memory) override;

 private:
  class Messages;
  friend class Messages;

  struct Send {
    int to = 0;
    MessageId id;
    const std::byte* bytes = nullptr;  // null: nobody wants it any more
    bool done = false;
  };
  // What waits for a slot.
  struct Outgoing {
    uint8_t frame = 0;
    MessageId id;
    uint64_t request = 0;
    std::shared_ptr<Send> send;  // of messages
    uint64_t sent = 0;           // bytes of it that are in slots
  };
  // The message whose slots come now.
  struct Incoming {
    MessageId id;
    PayloadTarget target;
    uint64_t request = 0;
    uint64_t received = 0;
  };
  struct Peer {
    std::shared_ptr<const Arena> arena;
    std::deque<Outgoing> queue;
    uint64_t put = 0;
    uint64_t taken = 0;
    uint64_t granted = 0;   // cost of all messages that were sent before their receives
    uint64_t returned = 0;  // what this rank has given back of the other's
    std::optional<Incoming> incoming;
    std::map<uint64_t, std::shared_ptr<Send>> offers;  // that were not asked for yet
  };

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  ArenaLayout::Line& line(int rank) const { return own_->line(rank); }
  // What that rank says of its exchange with this one.
  const ArenaLayout::Line& line_of(int rank) const {
    return peers_[static_cast<size_t>(rank)].arena->line(rank_);
  }
  uint64_t heap_bytes() const { return own_->layout().heap_bytes; }
  void check_rank(int rank, std::string_view call) const;
  uint64_t grant_of_each() const;

  void send(const std::shared_ptr<Send>& send);
  void flush(int to);
  bool put_slot(int to, Outgoing& next);
  void drain(int from);
  void take_slot(int from, const ArenaLayout::SlotHeader& header, const std::byte* bytes);
  void begin_message(int from, const ArenaLayout::SlotHeader& header);
  void ask(int from, uint64_t request);
  void send_answers();
  void check_failures();
  bool has_news() const;

  const int rank_;
  const std::shared_ptr<Arena> own_;
  ArenaHeap heap_;
  std::vector<Peer> peers_;  // by rank
  MessageMatcher matcher_;
  const bool spins_;
  uint64_t offers_ = 0;
  uint64_t moved_ = 0;
  std::mutex failure_mutex_;
};

}  // namespace fleet::transport

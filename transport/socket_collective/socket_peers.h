// Messages of collective operations over TCP and Unix sockets: every rank listens for the others,
// and has a lane to each of them. On the lane a message is a request, answered when its receive
// has it; so a connection that breaks is opened again, what has no answer is sent again, and the
// receiver takes it in once.
//
// Nothing is moved in the background. The thread that trains drives the loop, in poll() and
// rest(): messages move while an operation is tested or waited for, as over MPI. A rank that
// computes answers nobody meanwhile; `rpc_deadline` must be longer than the longest computation
// between two calls, and heartbeats belong to a loop of their own. Time in which this rank does not
// drive its loop is not counted against others.
//
// Messages that come early. Every rank grants each other one `early_bytes` / (ranks - 1) for
// messages whose receives are not posted there yet. A sender that keeps within the grant sends at
// once; else it offers the message first (a frame without payload), and sends it when the offer is
// answered, which happens when its receive is posted. A grant is given back with the answer. So a
// rank keeps at most `early_bytes`, and offers, for those that are ahead of it.
//
// Why this cannot deadlock, however many operations are under way and however far ranks are apart:
// - A lane never waits for a receive. Each frame on it is read at once: into the receive's memory,
//   into granted memory, or as an offer, which has no payload. A payload that was asked for has its
//   receive. So no message stands behind one that its receiver cannot take.
// - Answers do not wait behind payloads: those of one direction travel on one connection, their
//   answers on it the other way, where nothing else does, and reading answers never pauses.
// - Therefore, when a receive is posted and the message that it meets was sent, bytes of it are in
//   granted memory here, or under way, or its offer is here or under way; the offer is answered,
//   and the message follows, whatever else is or is not posted. Both ranks only have to drive their
//   loops, and who waits does.
// Sends are done when they are received. Operations that end when every send waits for its receive
// (as MPI_Issend does) end over this.
//
// A rank is lost when its listener refuses connections for `refused_grace` after a connection to it
// broke; one that cannot be reached otherwise, or does not answer, after `rpc_deadline`. Both fail
// the operations of those who have messages with it, and they tell the others why. A rank that has
// left in good order harms nobody who wants nothing of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/collective/point_to_point.h"
#include "transport/rpc/channel.h"
#include "transport/rpc/incarnations.h"
#include "transport/rpc/server.h"
#include "transport/socket_collective/message_matcher.h"

namespace fleet::transport {

struct SocketPeersOptions {
  // As every process of the job says it: `member` is a worker whose index is the rank,
  // `worker_num` the number of ranks.
  Hello hello;
  // Port 0: the kernel chooses, where the network has TCP.
  Endpoint listen{"127.0.0.1", 0};
  Secret secret;
  // Bounds the coming of the other ranks, and each message without any sign of life.
  Duration rpc_deadline = std::chrono::seconds(180);
  Duration handshake_timeout = std::chrono::seconds(10);
  Duration refused_grace = std::chrono::milliseconds(250);
  // For messages that come before their receives, over all ranks.
  uint64_t early_bytes = 64 * 1024 * 1024;
  // Who waits looks again and again for a moment, where the ranks of this machine have a core each.
  bool spins = true;
  std::function<void(MutableBytes)> random;  // for nonces; the operating system's when empty
};

// Belongs to the thread that drives the loop, failed() apart. Loop and network outlive this, and
// this its message sets.
class SocketPeers final : public PointToPoint, private ServerHandler {
 public:
  SocketPeers(DrivenLoop& loop, Network& network, SocketPeersOptions options, Logger logger = {});
  // Closes everything, without a word to the others.
  ~SocketPeers() override;
  SocketPeers(const SocketPeers&) = delete;
  SocketPeers& operator=(const SocketPeers&) = delete;

  // First, so that the others can be told bound(). kAddressInUse when somebody has the port.
  Status listen();
  const Endpoint& bound() const { return server_.bound(); }
  // Where every rank listens, by rank. Begins to connect to all of them at once: a rank that does
  // not come is named after `rpc_deadline` even if nobody sends to it, no step pays for the
  // handshakes, and whoever fails can tell everybody. Others may listen later.
  void connect(const std::vector<Endpoint>& endpoints);
  // Every rank has been reached.
  bool all_joined() const;

  // The end in good order, when the own operations are done: drives the loop until the others have
  // left too, so that an answer that was lost with its connection can be asked for again. False
  // when they have not within `patience`, or something had failed.
  bool leave(Duration patience);
  // The same in two steps, for whoever drives the loop otherwise.
  void begin_to_leave();
  bool everybody_left() const;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::unique_ptr<MessageSet> messages(const OperationId& operation) override;
  void poll() override;
  uint64_t progress() const override { return matcher_.received() + sent_; }
  // Offers the core to others and looks again, for a moment, where the ranks of this machine have a
  // core each; else, and after that, sleeps until something moves.
  void rest(Duration idle, TimePoint deadline) override;
  // From any thread. The others are told, and a thread in rest() wakes up.
  void failed(const Status& reason) override;
  // Tells the others, if nobody has, and lets go of the memory: nothing of it is read or written
  // afterwards.
  void give_up(std::vector<std::shared_ptr<const void>> memory) override;

  // What every call fails with; ok as long as nothing has.
  const Status& failure() const { return failure_; }
  // Memory that is kept for messages of a rank without receives, for tests and diagnosis.
  uint64_t early_bytes_of(int rank) const { return matcher_.early_bytes(rank); }

 private:
  class Messages;
  friend class Messages;

  struct Peer {
    std::unique_ptr<Channel> channel;  // to it; none to this rank itself
    Session* session = nullptr;        // from it
    bool seen = false;                 // a lane to it or from it was open once
    bool joined = false;
    bool left = false;
    Status gone;  // not ok: it will never answer
    std::optional<TimePoint> refused_since;
    uint64_t grant = 0;  // what may be sent to it before its receives
    uint64_t used = 0;   // of that
    size_t sends = 0;    // under way
  };

  // ServerHandler
  Status admit(const Hello& peer) override;
  Loop* on_open(Session& session) override;
  PayloadTarget prepare_payload(Session& session, const FrameHeader& header,
                                ConstBytes control) override;
  void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                MutableBytes payload) override;
  void on_closed(Session& session, const Status& why) override;

  ServerOptions server_options() const;
  void open_channel(int rank, const Endpoint& endpoint);
  void join(int rank);
  void on_join_failed(int rank, const Status& why);
  void on_attempt_failed(int rank, const Status& why);
  void on_notice(int rank, const FrameHeader& header, ConstBytes control);
  Status take_message(int rank, const FrameHeader& header, ConstBytes control);
  void send_answers();
  void answer(int rank, uint64_t request, const Status& status);
  void tell_failure(Session& session) const;

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  void check_rank(int rank, std::string_view call) const;
  uint64_t grant_of_each() const;
  void lose(int rank, const Status& why);
  void fail(const Status& why);
  void fail_request(int rank, const Status& why);
  std::string where(int rank) const;

  DrivenLoop& loop_;
  Network& network_;
  SocketPeersOptions options_;
  Logger logger_;
  int rank_;
  std::vector<Peer> peers_;  // by rank
  MessageMatcher matcher_;
  Incarnations incarnations_;
  Server server_;
  std::vector<Endpoint> endpoints_;
  bool spins_ = false;
  uint64_t sent_ = 0;
  Status failure_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace fleet::transport

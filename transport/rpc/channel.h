// One lane to one server that survives its connections: connects, connects again with growing
// pauses, and sends unfinished requests again. Everything on the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/log.h"
#include "transport/session/session.h"

namespace fleet::transport {

using ReplyTarget = std::function<PayloadTarget(const FrameHeader& header, ConstBytes control)>;
using ReplyHandler =
    std::function<void(const FrameHeader& header, ConstBytes control, MutableBytes payload)>;
using DoneHandler = std::function<void(const Status& status)>;

// One unit of asking: frames that leave together, in this order, and an answer of one or more
// frames. The channel fills in request_id. Payload memory must stay as it is until `on_done`: after
// a reconnect all frames are sent again, and the server knows by their ids what it has applied.
// Answer frames may come again too.
struct Request {
  std::vector<Message> frames;
  ReplyTarget reply_target;  // empty: answers have no payload
  ReplyHandler on_reply;     // each kReply frame, may be empty
  // Once: ok after the last answer frame; the server's own status after a kErrorReply; kDeadline
  // after the rpc deadline without progress; what fail_all was given; a refused handshake.
  DoneHandler on_done;
  Duration deadline = Duration(0);  // 0: the channel's
};

struct ChannelOptions {
  Endpoint endpoint;
  Hello hello;  // with lane, lane_index and callee set
  Secret secret;
  SessionLimits limits;
  size_t send_buffer = 0;  // Link::set_send_buffer; 0: as the system has it
  // Bounds a request without any progress, over all its connections and the attempts to make them
  // (FLAGS_rpc_deadline). Progress is: frames of the request, or of one before it, that leave for
  // the first time, an answer frame that has not come before, and the server's transport answering
  // a ping while a request waits for other processes. Frames that leave once more are none, but the
  // clock stands still while they move, for as long as the deadline. Only time in which the loop
  // is driven counts.
  Duration rpc_deadline = std::chrono::seconds(180);
  Duration handshake_timeout = std::chrono::seconds(10);
  Duration backoff_min = std::chrono::milliseconds(2);
  Duration backoff_max = std::chrono::milliseconds(500);
  std::function<void(MutableBytes)> random;  // for nonces
  // While the other side cannot be reached, say so in the log: after 3 s, after twice as long, and
  // so on; and say once what differs there and may change bits. One of a process's lanes to a
  // server is enough.
  bool tell_unreachable = true;
};

// What happens to the lane itself; all may be empty.
struct ChannelEvents {
  std::function<void(const Hello& server)> on_open;
  std::function<void(const Status& why)> on_lost;  // will connect again
  std::function<void(const Status& why)> on_attempt_failed;
  std::function<void(const Status& why)> on_refused;                             // for good
  std::function<void(const FrameHeader& header, ConstBytes control)> on_notice;  // request_id 0
};

class Channel final : private SessionHandler {
 public:
  Channel(Loop& loop, Network& network, ChannelOptions options, ChannelEvents events = {},
          Logger logger = {});
  ~Channel() override;  // closes; no handler runs afterwards
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void start();
  // Never calls back inside the call. The number names the request in cancel().
  uint64_t submit(Request request);
  // Forgets it: nothing of it is called any more, its memory may go.
  void cancel(uint64_t request);
  // A frame without an answer; dropped when the lane is not open.
  void notify(Message message);
  void fail_all(const Status& why);
  // Says goodbye once every request is answered, and connects no more.
  void finish();

  bool open() const;
  bool same_machine() const { return open() && session_->same_machine(); }
  size_t pending() const { return pending_.size(); }
  // Whether bytes have moved, either way, on the connection that was there at the last call with
  // the same mark: pings apart, which leave without a sign of life from the other side.
  struct Mark {
    uint64_t connection = 0;
    uint64_t bytes = 0;
  };
  bool moved_since(Mark& mark) const;
  const Endpoint& endpoint() const { return options_.endpoint; }
  std::string describe() const;  // "server 1 at 127.0.0.1:6174"
  // One line for each request that waits: its verb, whom it waits for, and for how long nothing
  // has come from there.
  std::vector<std::string> waits() const;

 private:
  struct Pending {
    Request request;
    Duration deadline{0};
    Duration silent{0};
    Duration resending{0};  // since the last progress
    // Its frames [first, last) in the count of the session that has them; none: 0 to 0.
    uint64_t first_frame = 0;
    uint64_t last_frame = 0;
    uint64_t sends = 0;
    uint64_t most_left = 0;  // of its frames, over all connections
    uint64_t answers = 0;    // on this connection
    uint64_t most_answers = 0;
  };

  PayloadTarget prepare_payload(Session& session, const FrameHeader& header,
                                ConstBytes control) override;
  void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                MutableBytes payload) override;
  void on_closed(Session& session, const Status& why) override;
  Loop* on_open(Session& session) override;

  std::shared_ptr<Pending> find(uint64_t id) const;
  void connect();
  void try_route();
  void on_connected(Result<std::unique_ptr<Link>> link);
  void route_failed(const Status& why);
  void tell_unsafe(const Status& why);
  void schedule_connect();
  void tell_unreachable();
  void tell_differing_bits(const Hello& peer) const;
  void refuse(const Status& why);
  void send_request(uint64_t id, Pending& pending);
  void complete(uint64_t id, const Status& status);
  std::shared_ptr<Pending> take(uint64_t id);
  void forget_session();
  void reconnect();
  void drop_session();
  void arm_tick();
  void tick();
  void note_answer();
  bool newly_left(Pending& pending, bool moved) const;
  static void add_silence(Pending& pending, Duration elapsed, bool moved);
  void send_ping();
  Status deadline_status(const Pending& pending) const;
  void maybe_goodbye();
  void stop_timers();

  // What every request asks for comes first.
  Loop& loop_;
  std::shared_ptr<Session> session_;
  std::map<uint64_t, std::shared_ptr<Pending>> pending_;
  uint64_t next_id_ = 1;
  uint64_t reading_for_ = 0;  // the request whose answer's payload is being read
  Status fatal_;
  bool started_ = false;
  bool finishing_ = false;
  bool answered_ = false;
  std::optional<Loop::TimerId> tick_timer_;
  Duration tick_interval_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Duration backoff_{0};
  uint64_t connections_ = 0;  // that opened
  uint64_t ping_bytes_ = 0;   // on the open one
  Mark ticked_;
  TimePoint last_tick_{};

  Network& network_;
  std::minstd_rand jitter_;
  ChannelOptions options_;
  ChannelEvents events_;
  Logger logger_;
  std::vector<Address> routes_;
  size_t route_ = 0;
  bool unix_refused_ = false;  // in this attempt to connect
  bool looked_again_ = false;
  std::unique_ptr<Connector> connector_;
  std::optional<Loop::TimerId> connect_timer_;
  std::optional<TimePoint> unreachable_since_;
  Duration next_notice_{0};  // counted from there
  std::optional<TimePoint> unsafe_told_;
  Status last_failure_;
};

}  // namespace fleet::transport

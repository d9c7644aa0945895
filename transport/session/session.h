// One connection after the other side is known: frames in, frames out. Handshake, gather writes,
// scatter reads, bounds and keep-alive answers happen here; meaning belongs to the handler.
//
// A session lives on one loop. Every call is made on that loop's thread, and so are the handler's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/link/link.h"
#include "transport/session/handshake.h"

namespace fleet::transport {

class Session;

// Where the payload of a frame goes. The memory must hold exactly header.payload_bytes and is
// written until on_frame or on_closed comes, kept alive by `owner` when that is set. A connection
// that breaks inside a payload leaves the memory half written, and one whose tag turns out wrong
// leaves somebody else's bytes there: give memory that a retry fills again, never a sum.
struct PayloadTarget {
  MutableBytes memory;
  std::shared_ptr<const void> owner;
  bool discarded = false;  // read and dropped; on_frame gets an empty payload
  Status refusal;          // not ok: the frame is a breach, the session ends with this status

  static PayloadTarget into(MutableBytes memory, std::shared_ptr<const void> owner = nullptr);
  static PayloadTarget discard();
  static PayloadTarget refuse(Status why);
};

// May call send, flush and close of any session on the same loop. Must not block. What
// prepare_payload or on_frame throws on the accepting side becomes an error reply, or the end of
// the session when no answer is wanted; on the connecting side it reaches whoever drives the loop.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;

  // The handshake is done; session.peer() is known. The session goes on living on the loop that
  // is returned (null: where it is), with its handler's further calls made there. A handler that
  // gave the session to another one (set_handler) is followed by that one's on_open.
  virtual Loop* on_open(Session& session);
  // Only for frames with a payload. The spans are valid during the call.
  virtual PayloadTarget prepare_payload(Session& session, const FrameHeader& header,
                                        ConstBytes control) = 0;
  // The whole frame is in. `control` is valid during the call; `payload` is the target's memory.
  virtual void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                        MutableBytes payload) = 0;
  // Once, the last call: the connection ended, or never opened. Ok after the peer's kGoodbye;
  // kPeerLost when the connection closed or broke; handshake and frame errors as they are. Not
  // called after the own close() or finish().
  virtual void on_closed(Session& session, const Status& why) = 0;
};

struct SessionLimits {
  uint32_t max_control_bytes = 1 << 20;
  uint64_t max_payload_bytes = uint64_t{1} << 40;
  // A peer that does not read its answers: reading from it pauses above the first bound (never on
  // the connecting side), the session ends above the second.
  size_t pause_queued_frames = 4096;
  size_t max_queued_frames = 1 << 20;
};

struct SessionOptions {
  uint64_t id = 0;  // the owner's number for it, in session.id()
  Side side = Side::kConnecting;
  SessionLimits limits;
  Duration handshake_timeout = std::chrono::seconds(10);
  HandshakeOptions handshake;
};

class Session final : public std::enable_shared_from_this<Session> {
 public:
  // `handler` must outlive the session or its close().
  Session(Loop& loop, std::unique_ptr<Link> link, SessionHandler& handler, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start();

  // Queues a frame. What is queued leaves in as few system calls as possible: at once when
  // `flush` is set, but inside a handler's call at the end of the read turn at the latest. A
  // session that has ended drops it: on_closed tells. Before on_open it is a breach of contract.
  void send(Message message, bool flush = true);
  void flush();

  // Closes now and drops what is queued. finish() sends the rest and a kGoodbye first, and gives
  // that up after `linger`. No handler is called after either.
  void close();
  void finish(Duration linger = std::chrono::seconds(5));

  // Inside on_open only. `owner` keeps the handler alive as long as the session.
  void set_handler(SessionHandler& handler, std::shared_ptr<const void> owner = nullptr) {
    handler_ = &handler;
    handler_owner_ = std::move(owner);
  }
  // What is left of the payload that is being read goes nowhere, and on_frame gets an empty one.
  void discard_payload();

  bool open() const { return state_ == State::kOpen; }
  bool was_open() const { return opened_; }
  const Hello& peer() const { return handshake_.peer(); }
  // Of the frames of this connection; what was changed on its way ended it when tampered() is true.
  FrameProtection protection() const { return handshake_.protection(); }
  bool tampered() const { return tampered_; }
  std::string describe() const;                                // "worker 1 (unix fleet-6174)"
  bool same_machine() const { return link_->same_machine(); }  // while open
  uint64_t id() const { return options_.id; }
  Loop& loop() const { return *loop_; }

  uint64_t bytes_written() const { return bytes_written_; }
  uint64_t bytes_read() const { return bytes_read_; }
  size_t queued_frames() const { return queue_.size(); }
  // Frames ever queued, and how many of them have left (their memory is no longer read).
  uint64_t frames_queued() const { return frames_queued_; }
  uint64_t frames_written() const { return frames_queued_ - queue_.size(); }

 private:
  // Small frames, and many of them, come in whole with one read: a read that fills less than its
  // memory is known to be the last one for now. The memory grows when a read fills it, up to the
  // second bound: of a large payload no more than this is copied.
  static constexpr size_t kFirstAheadBytes = 1024;
  static constexpr size_t kMostAheadBytes = 64 * 1024;
  // What one session may read, or write, before the others of its loop get their turn.
  static constexpr uint64_t kTurnBytes = 4 * 1024 * 1024;

  enum class State : uint8_t { kHandshake, kOpen, kFinishing, kClosed };
  struct Outgoing {
    EncodedHeader header;
    std::vector<std::byte> control;  // with its tag behind it, when the frame is protected
    Payload payload;
    size_t payload_tag_bytes = 0;
    FrameTag payload_tag{};
    bool must_seal = false;  // the tags are not there yet
    size_t size() const { return kHeaderBytes + control.size() + payload.size + payload_tag_bytes; }
  };

  // Frames in the order in which they leave.
  class OutgoingQueue {
   public:
    bool empty() const { return begin_ == frames_.size(); }
    size_t size() const { return frames_.size() - begin_; }
    Outgoing& front() { return frames_[begin_]; }
    std::span<Outgoing> all() { return std::span(frames_).subspan(begin_); }
    void push_back(Outgoing frame) { frames_.push_back(std::move(frame)); }
    void pop_front();
    void clear();

   private:
    std::vector<Outgoing> frames_;
    size_t begin_ = 0;  // those before have left
  };

  void arm_read();
  void read_turn();
  void compact();
  MutableBytes ahead_room();
  void grow_ahead();
  bool fill();
  bool absorb(IoResult got, size_t direct, size_t asked);
  void post_read_turn();
  bool may_read() const;
  bool consume();
  bool take_header();
  bool take_control();
  bool prepare_target();
  bool take_payload();
  bool take_payload_tag();
  bool finish_frame();
  bool is_protected(Verb verb) const;
  size_t control_tag_bytes() const;
  bool open_control();
  void take_in(MutableBytes arrived);
  bool tampering();
  void hand_over();
  void answer_exception(const Status& status);
  bool on_handshake_frame();
  bool open_now();
  void move_now();
  Status check_frame() const;
  void after_frame();

  void enqueue(Message message);
  void protect();
  void seal(Outgoing& frame);
  size_t gather(std::span<ConstBytes> parts);
  void arm_write();
  void write_turn();
  void advance(size_t written);
  void breach(const Status& why);
  void end(const Status& why);
  void shut();
  Status lost(std::string what) const;

  // What every frame asks for comes first, and close together: a server with many peers has none of
  // it in a cache when the next frame of one comes.
  Loop* loop_;
  std::unique_ptr<Link> link_;
  SessionHandler* handler_;
  State state_ = State::kHandshake;
  bool writing_waits_ = false;
  bool reading_waits_ = false;
  bool reading_paused_ = false;
  bool in_read_turn_ = false;
  bool write_broken_ = false;
  bool opened_ = false;
  bool tampered_ = false;
  bool ahead_filled_ = false;  // by the last read
  bool drained_ = false;
  enum class Part : uint8_t { kHeader, kControl, kPayload, kPayloadTag } part_ = Part::kHeader;
  OutgoingQueue queue_;
  size_t queued_bytes_ = 0;
  size_t front_written_ = 0;
  uint64_t frames_queued_ = 0;
  uint64_t bytes_written_ = 0;
  uint64_t bytes_read_ = 0;
  std::unique_ptr<FrameCipher> sealer_;  // both null as long as frames are not protected
  std::unique_ptr<FrameCipher> opener_;
  Loop* next_loop_ = nullptr;

  std::unique_ptr<std::byte[]> ahead_;  // read ahead of the frame in hand
  size_t ahead_bytes_ = 0;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  uint64_t payload_have_ = 0;
  std::vector<std::byte> control_;
  PayloadTarget target_;
  FrameHeader header_;
  EncodedHeader header_bytes_;

  SessionOptions options_;
  std::shared_ptr<const void> handler_owner_;
  Handshake handshake_;
  std::optional<Loop::TimerId> handshake_timer_;
  std::string peer_name_;
  std::vector<std::byte> scrap_;
};

// The random number that tells one process from its predecessor at the same place.
uint64_t make_incarnation();

// The widest vector instructions that this processor has, as said in a hello: "avx512", "avx2".
std::string instruction_set();

}  // namespace fleet::transport

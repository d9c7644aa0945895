#include "transport/session/session.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr size_t kMaxParts = 64;
// Inside a read turn, answers wait for the end of the turn or for this much.
constexpr size_t kEagerBytes = 128 * 1024;
// Protected frames are read twice, for their tags and by the kernel: so much stays in the cache.
constexpr size_t kSealedAtOnce = 512 * 1024;

}  // namespace

PayloadTarget PayloadTarget::into(MutableBytes memory, std::shared_ptr<const void> owner) {
  PayloadTarget target;
  target.memory = memory;
  target.owner = std::move(owner);
  return target;
}

PayloadTarget PayloadTarget::discard() {
  PayloadTarget target;
  target.discarded = true;
  return target;
}

PayloadTarget PayloadTarget::refuse(Status why) {
  PayloadTarget target;
  target.refusal = std::move(why);
  return target;
}

Loop* SessionHandler::on_open(Session&) {
  return nullptr;
}

Session::Session(Loop& loop, std::unique_ptr<Link> link, SessionHandler& handler,
                 SessionOptions options)
    : loop_(&loop),
      link_(std::move(link)),
      handler_(&handler),
      options_(std::move(options)),
      handshake_(options_.side, options_.handshake, link_->kind(), link_->peer_process()),
      peer_name_(link_->peer_name()) {}

Session::~Session() = default;

std::string Session::describe() const {
  if (!handshake_.done()) return peer_name_;
  return str_cat(handshake_.peer().member.to_string(), " (", peer_name_, ")");
}

LinkKind Session::link_kind() const {
  return link_ ? link_->kind() : LinkKind::kMemory;
}

Status Session::lost(std::string what) const {
  return Status(
      ErrorCode::kPeerLost,
      {.what = std::move(what), .where = describe(), .expected = {}, .got = {}, .fix = {}});
}

void Session::start() {
  ahead_ = std::make_unique_for_overwrite<std::byte[]>(kAheadBytes);
  handshake_timer_ = loop_->call_after(options_.handshake_timeout, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->state_ != State::kHandshake) return;
    self->handshake_timer_.reset();
    self->end(Status(ErrorCode::kDeadline, {.what = "the handshake was not finished in time",
                                            .where = self->describe(),
                                            .expected = {},
                                            .got = {},
                                            .fix = {}}));
  });
  for (Message& message : handshake_.start()) enqueue(std::move(message));
  write_turn();
  arm_read();
}

// ---- opening

bool Session::on_handshake_frame() {
  auto answers = handshake_.on_frame(header_, control_);
  protect();
  for (Message& message : answers) enqueue(std::move(message));
  write_turn();
  if (state_ == State::kClosed) return false;
  if (handshake_.failed()) {
    end(handshake_.status());
    return false;
  }
  return !handshake_.done() || open_now();
}

bool Session::open_now() {
  state_ = State::kOpen;
  opened_ = true;
  if (handshake_timer_) loop_->cancel(*handshake_timer_);
  handshake_timer_.reset();
  for (;;) {
    SessionHandler* const before = handler_;
    Loop* const next = handler_->on_open(*this);
    if (state_ == State::kClosed) return false;
    if (next != nullptr && next != loop_) {
      next_loop_ = next;
      return false;
    }
    if (handler_ == before) return true;
  }
}

void Session::move_now() {
  Loop* const next = next_loop_;
  next_loop_ = nullptr;
  writing_waits_ = false;
  link_ = link_->rebind(*next);
  loop_ = next;
  // From here on the session belongs to the other loop's thread.
  next->post([self = shared_from_this()] {
    if (self->state_ == State::kClosed) return;
    if (!self->open_now()) return;
    self->read_turn();
  });
}

// ---- writing

void Session::enqueue(Message message) {
  message.header.control_bytes = static_cast<uint32_t>(message.control.size());
  message.header.payload_bytes = message.payload.size;
  Outgoing outgoing;
  outgoing.header = encode_header(message.header);
  outgoing.control = std::move(message.control);
  outgoing.payload = std::move(message.payload);
  if (sealer_ && is_protected(message.header.verb)) {
    outgoing.must_seal = true;
    outgoing.control.resize(outgoing.control.size() + kTagBytes);
    outgoing.payload_tag_bytes = outgoing.payload.size == 0 ? 0 : kTagBytes;
  }
  queued_bytes_ += outgoing.size();
  ++frames_queued_;
  queue_.push_back(std::move(outgoing));
}

void Session::send(Message message, bool flush_now) {
  if (state_ != State::kOpen) return;
  if (queue_.size() >= options_.limits.max_queued_frames) {
    write_broken_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    loop_->post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->end(self->lost("the other side does not read what it is sent"));
      }
    });
    return;
  }
  if (write_broken_) return;
  enqueue(std::move(message));
  if (flush_now) flush();
}

void Session::flush() {
  if (in_read_turn_ && queued_bytes_ < kEagerBytes) return;
  write_turn();
}

void Session::arm_write() {
  writing_waits_ = true;
  link_->wait_writable([this] {
    const auto self = shared_from_this();
    writing_waits_ = false;
    write_turn();
  });
}

void Session::write_turn() {
  if (state_ == State::kClosed || writing_waits_ || write_broken_) return;
  const uint64_t limit = bytes_written_ + kTurnBytes;
  while (!queue_.empty()) {
    if (bytes_written_ >= limit) return arm_write();
    std::array<ConstBytes, kMaxParts> parts;
    const size_t count = gather(parts);
    const IoResult put = link_->write_some(std::span(parts).first(count));
    if (put.state == IoState::kOk) {
      advance(put.bytes);
      continue;
    }
    if (put.state == IoState::kWouldBlock) return arm_write();
    // The other side may have said why before it closed: reading finds that, and then the end.
    write_broken_ = true;
    queue_.clear();
    queued_bytes_ = 0;
    if (state_ == State::kFinishing) return shut();
    reading_paused_ = false;
    if (!in_read_turn_) arm_read();
    return;
  }
  if (state_ == State::kFinishing) shut();
}

// What is to be written next, as far as there is room.
size_t Session::gather(std::span<ConstBytes> parts) {
  size_t count = 0;
  size_t skip = front_written_;
  size_t sealed = 0;
  for (Outgoing& frame : queue_) {
    if (count + 4 > parts.size() || sealed >= kSealedAtOnce) break;
    if (frame.must_seal) {
      seal(frame);
      sealed += frame.size();
    }
    for (const ConstBytes part : {ConstBytes(frame.header), ConstBytes(frame.control),
                                  ConstBytes(frame.payload.data, frame.payload.size),
                                  ConstBytes(frame.payload_tag).first(frame.payload_tag_bytes)}) {
      const size_t skipped = std::min(skip, part.size());
      skip -= skipped;
      if (skipped < part.size()) parts[count++] = part.subspan(skipped);
    }
  }
  return count;
}

// ---- protection

// The proofs travel without: they come before the keys.
bool Session::is_protected(Verb verb) const {
  return verb != Verb::kAuthChallenge && verb != Verb::kAuthResponse && verb != Verb::kAuthConfirm;
}

void Session::protect() {
  const Handshake::Keys* const keys = handshake_.keys();
  if (sealer_ || keys == nullptr) return;
  const FrameProtection how = handshake_.protection();
  sealer_ = std::make_unique<FrameCipher>(FrameCipher::Use::kSeal, how, keys->ours);
  opener_ = std::make_unique<FrameCipher>(FrameCipher::Use::kOpen, how, keys->theirs);
}

// Just before it is written, so that frames are sealed in the order in which they are opened. A
// payload that is encrypted gets memory of its own.
void Session::seal(Outgoing& frame) {
  frame.must_seal = false;
  const MutableBytes control = MutableBytes(frame.control).first(frame.control.size() - kTagBytes);
  sealer_->begin();
  sealer_->associate(frame.header);
  sealer_->process(control, control.data());
  const FrameTag tag = sealer_->seal();
  std::copy(tag.begin(), tag.end(), frame.control.end() - kTagBytes);
  if (frame.payload.size == 0) return;
  sealer_->begin();
  const ConstBytes payload(frame.payload.data, frame.payload.size);
  if (sealer_->encrypts()) {
    const Buffer cipher_text(payload.size());
    sealer_->process(payload, cipher_text.data());
    frame.payload = Payload(cipher_text);
  } else {
    sealer_->process(payload, nullptr);
  }
  frame.payload_tag = sealer_->seal();
}

void Session::advance(size_t written) {
  bytes_written_ += written;
  queued_bytes_ -= written;
  front_written_ += written;
  while (!queue_.empty() && front_written_ >= queue_.front().size()) {
    front_written_ -= queue_.front().size();
    queue_.pop_front();
  }
  if (reading_paused_ && state_ == State::kOpen &&
      queue_.size() <= options_.limits.pause_queued_frames / 2) {
    reading_paused_ = false;
    if (in_read_turn_ || reading_waits_) return;
    // Frames may lie ready in memory, so the turn is not tied to the socket.
    post_read_turn();
  }
}

// ---- ending

// The peer broke the rules: it is told, and the session ends.
void Session::breach(const Status& why) {
  enqueue(Handshake::refusal(why));
  write_turn();
  end(why);
}

void Session::end(const Status& why) {
  if (state_ == State::kClosed) return;
  const auto keep = weak_from_this().lock();
  const bool tell = state_ != State::kFinishing;
  shut();
  if (tell) handler_->on_closed(*this, why);
}

void Session::shut() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (handshake_timer_) loop_->cancel(*handshake_timer_);
  handshake_timer_.reset();
  queue_.clear();
  queued_bytes_ = 0;
  link_->close();
  target_ = {};
}

void Session::close() {
  shut();
}

void Session::finish(Duration linger) {
  if (state_ != State::kOpen) return shut();
  Message goodbye;
  goodbye.header.verb = Verb::kGoodbye;
  enqueue(std::move(goodbye));
  state_ = State::kFinishing;
  reading_paused_ = true;
  write_turn();
  if (state_ == State::kClosed) return;
  // Keeps the session until its queue has left.
  handshake_timer_ = loop_->call_after(linger, [self = shared_from_this()] {
    self->handshake_timer_.reset();
    self->shut();
  });
}

uint64_t make_incarnation() {
  uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

std::string instruction_set() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    return "avx512";
  }
  return __builtin_cpu_supports("avx2") != 0 ? "avx2" : "sse2";
}

}  // namespace fleet::transport

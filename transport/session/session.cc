#include "transport/session/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/caught.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr size_t kMaxParts = 64;
// Inside a read turn, answers wait for the end of the turn or for this much.
constexpr size_t kEagerBytes = 128 * 1024;
// Protected frames are read twice, for their tags and by the kernel: so much stays in the cache.
constexpr size_t kSealedAtOnce = 512 * 1024;

// Behind the rest of a large payload only the next header is wanted: its payload has a place of
// its own.
constexpr size_t kLargeBytes = 64 * 1024;
constexpr size_t kAheadOfLargeBytes = 512;
constexpr size_t kScrapBytes = 64 * 1024;
constexpr const char* kWhere = "handler of a frame";

bool is_handshake(Verb verb) {
  return verb <= Verb::kRefuse;
}

bool may_have_payload(Verb verb) {
  return verb == Verb::kReply || verb == Verb::kReduce || verb >= Verb::kPush;
}

FrameTag tag_at(const std::byte* bytes) {
  FrameTag tag;
  std::memcpy(tag.data(), bytes, tag.size());
  return tag;
}

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
      handshake_(options_.side, std::move(options_.handshake), link_->kind(),
                 link_->peer_process()),
      peer_name_(link_->peer_name()) {}

Session::~Session() = default;

std::string Session::describe() const {
  if (!handshake_.done()) return peer_name_;
  return str_cat(handshake_.peer().member.to_string(), " (", peer_name_, ")");
}

Status Session::lost(std::string what) const {
  return Status(
      ErrorCode::kPeerLost,
      {.what = std::move(what), .where = describe(), .expected = {}, .got = {}, .fix = {}});
}

void Session::start() {
  grow_ahead();
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

void Session::OutgoingQueue::pop_front() {
  frames_[begin_++] = {};
  if (empty()) return clear();
  if (begin_ < frames_.size() / 2) return;
  frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
}

// Memory for a few frames stays.
void Session::OutgoingQueue::clear() {
  constexpr size_t kKept = 32;
  frames_.clear();
  begin_ = 0;
  if (frames_.capacity() > kKept) frames_.shrink_to_fit();
}

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
  for (Outgoing& frame : queue_.all()) {
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

// ---- protection of what leaves

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

// ---- reading: ahead into a small buffer, large payloads straight to their place

// The link lives no longer than the session, and calls nothing once it is closed.
void Session::arm_read() {
  if (reading_waits_ || reading_paused_ || state_ == State::kClosed) return;
  reading_waits_ = true;
  if (part_ == Part::kPayload) {
    return link_->wait_readable([this] {
      const auto self = shared_from_this();
      reading_waits_ = false;
      read_turn();
    });
  }
  const MutableBytes room = ahead_room();
  link_->read_later(room, [this, asked = room.size()](IoResult got) {
    const auto self = shared_from_this();
    reading_waits_ = false;
    if (absorb(got, 0, asked)) read_turn();
  });
}

void Session::post_read_turn() {
  reading_waits_ = true;
  loop_->post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->reading_waits_ = false;
    self->drained_ = false;
    self->read_turn();
  });
}

// What has been read already is worked through first; then it reads until nothing is left.
void Session::read_turn() {
  if (!may_read()) return;
  in_read_turn_ = true;
  const uint64_t limit = bytes_read_ + kTurnBytes;
  while (consume() && !drained_ && bytes_read_ < limit && fill()) {
  }
  in_read_turn_ = false;
  if (state_ == State::kClosed) return;
  if (next_loop_ != nullptr) return move_now();
  write_turn();
  if (state_ == State::kClosed || reading_paused_) return;
  if (!std::exchange(drained_, false)) return post_read_turn();
  arm_read();
}

void Session::compact() {
  if (ahead_begin_ == 0) return;
  std::memmove(ahead_.get(), ahead_.get() + ahead_begin_, ahead_end_ - ahead_begin_);
  ahead_end_ -= ahead_begin_;
  ahead_begin_ = 0;
}

// Where the next bytes go, behind those that lie ahead.
MutableBytes Session::ahead_room() {
  compact();
  if (ahead_filled_) grow_ahead();
  return {ahead_.get() + ahead_end_, ahead_bytes_ - ahead_end_};
}

void Session::grow_ahead() {
  ahead_filled_ = false;
  if (ahead_bytes_ == kMostAheadBytes) return;
  const size_t bytes = std::clamp(4 * ahead_bytes_, kFirstAheadBytes, kMostAheadBytes);
  auto larger = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (ahead_end_ > 0) std::memcpy(larger.get(), ahead_.get(), ahead_end_);
  ahead_ = std::move(larger);
  ahead_bytes_ = bytes;
}

// Reads once; false when the session ended. What lies ahead is at most a part of a header here.
bool Session::fill() {
  const MutableBytes room = ahead_room();
  std::array<MutableBytes, 2> parts;
  size_t count = 0;
  size_t direct = 0;
  if (part_ == Part::kPayload) {
    const uint64_t rest = header_.payload_bytes - payload_have_;
    if (target_.discarded) {
      scrap_.resize(kScrapBytes);
      parts[count++] = MutableBytes(scrap_).first(std::min<uint64_t>(rest, kScrapBytes));
    } else {
      parts[count++] = target_.memory.subspan(payload_have_);
    }
    direct = parts[0].size();
  }
  parts[count++] =
      direct < kLargeBytes ? room : room.first(std::min(room.size(), kAheadOfLargeBytes));
  const size_t asked = direct + parts[count - 1].size();
  return absorb(link_->read_some(std::span(parts).first(count)), direct, asked);
}

// Takes in what one read brought: `direct` bytes go to the payload, the rest lies ahead. False
// when the session ended.
bool Session::absorb(IoResult got, size_t direct, size_t asked) {
  switch (got.state) {
    case IoState::kOk:
      break;
    case IoState::kWouldBlock:
      drained_ = true;
      return true;
    case IoState::kClosed:
      end(lost("the connection was closed by the other side"));
      return false;
    case IoState::kFailed:
      end(lost("the connection broke"));
      return false;
  }
  bytes_read_ += got.bytes;
  const size_t arrived = std::min(got.bytes, direct);
  if (arrived != 0) {
    take_in(target_.discarded ? MutableBytes(scrap_).first(arrived)
                              : target_.memory.subspan(payload_have_, arrived));
  }
  // Inside a payload the other side is likely to be writing the rest just now.
  drained_ = got.bytes < asked && got.bytes >= direct;
  payload_have_ += arrived;
  ahead_end_ += got.bytes - arrived;
  ahead_filled_ = ahead_end_ == ahead_bytes_;
  return true;
}

bool Session::may_read() const {
  return state_ != State::kClosed && next_loop_ == nullptr && !reading_paused_;
}

// Works through what has been read. False when the turn must end.
bool Session::consume() {
  for (;;) {
    if (!may_read()) return false;
    switch (part_) {
      case Part::kHeader:
        if (ahead_end_ - ahead_begin_ < kHeaderBytes) return true;
        if (!take_header()) return false;
        break;
      case Part::kControl:
        if (!take_control()) return may_read();
        break;
      case Part::kPayload:
        if (!take_payload()) return may_read();
        break;
      case Part::kPayloadTag:
        if (ahead_end_ - ahead_begin_ < kTagBytes) return true;
        if (!take_payload_tag()) return false;
        break;
    }
  }
}

bool Session::take_header() {
  std::memcpy(header_bytes_.data(), ahead_.get() + ahead_begin_, kHeaderBytes);
  const auto decoded = decode_header(header_bytes_);
  ahead_begin_ += kHeaderBytes;
  if (!decoded.ok()) {
    if (opener_) return tampering();
    breach(decoded.status());
    return false;
  }
  header_ = decoded.value();
  if (const Status status = check_frame(); !status.ok()) {
    breach(status);
    return false;
  }
  control_.clear();
  payload_have_ = 0;
  part_ = Part::kControl;
  return true;
}

Status Session::check_frame() const {
  const auto wrong = [this](std::string what, std::string expected, std::string got) {
    return Status(ErrorCode::kBadFrame, {.what = std::move(what),
                                         .where = describe(),
                                         .expected = std::move(expected),
                                         .got = std::move(got),
                                         .fix = {}});
  };
  const bool shaking = state_ == State::kHandshake;
  if (is_handshake(header_.verb) != shaking && header_.verb != Verb::kRefuse) {
    return wrong(shaking ? "a frame came before the handshake was done"
                         : "a handshake frame came after the handshake",
                 shaking ? "a handshake frame" : "another frame",
                 std::string(verb_name(header_.verb)));
  }
  const size_t max_control =
      is_handshake(header_.verb) ? Handshake::kMaxControlBytes : options_.limits.max_control_bytes;
  if (header_.control_bytes > max_control) {
    return wrong("a frame's control part is too long", str_cat("at most ", max_control, " bytes"),
                 str_cat(header_.control_bytes));
  }
  const uint64_t max_payload =
      may_have_payload(header_.verb) ? options_.limits.max_payload_bytes : 0;
  if (header_.payload_bytes > max_payload) {
    return wrong("a frame's payload is too long", str_cat("at most ", max_payload, " bytes"),
                 str_cat(header_.payload_bytes));
  }
  return {};
}

// False when more bytes are needed, or the session ended.
bool Session::take_control() {
  const size_t rest = header_.control_bytes + control_tag_bytes() - control_.size();
  const size_t take = std::min(rest, ahead_end_ - ahead_begin_);
  const std::byte* const begin = ahead_.get() + ahead_begin_;
  control_.insert(control_.end(), begin, begin + take);
  ahead_begin_ += take;
  if (take < rest) return false;
  if (!open_control()) return false;
  if (header_.payload_bytes == 0) {
    target_ = {};
    return finish_frame();
  }
  return prepare_target();
}

bool Session::prepare_target() {
  try {
    target_ = handler_->prepare_payload(*this, header_, control_);
  } catch (...) {
    if (options_.side == Side::kConnecting) throw;
    target_ = PayloadTarget::refuse(caught_status(kWhere));
  }
  if (state_ == State::kClosed) return false;
  if (!target_.refusal.ok()) {
    breach(target_.refusal);
    return false;
  }
  if (!target_.discarded && target_.memory.size() != header_.payload_bytes) {
    breach(Status(ErrorCode::kBadFrame,
                  {.what = "a payload does not have the size of what it is for",
                   .where = str_cat(describe(), ", ", verb_name(header_.verb), " of variable ",
                                    header_.variable, ", piece ", header_.piece),
                   .expected = str_cat(target_.memory.size(), " bytes"),
                   .got = str_cat(header_.payload_bytes, " bytes"),
                   .fix = {}}));
    return false;
  }
  part_ = Part::kPayload;
  if (opener_) opener_->begin();
  return true;
}

bool Session::take_payload() {
  const uint64_t rest = header_.payload_bytes - payload_have_;
  const size_t take = std::min<uint64_t>(rest, ahead_end_ - ahead_begin_);
  if (take != 0) {
    MutableBytes arrived(ahead_.get() + ahead_begin_, take);
    if (!target_.discarded) {
      std::memcpy(target_.memory.data() + payload_have_, arrived.data(), take);
      arrived = target_.memory.subspan(payload_have_, take);
    }
    take_in(arrived);
  }
  ahead_begin_ += take;
  payload_have_ += take;
  if (take < rest) return false;
  if (!opener_) return finish_frame();
  part_ = Part::kPayloadTag;
  return true;
}

// ---- protection of what comes in

size_t Session::control_tag_bytes() const {
  return opener_ && is_protected(header_.verb) ? kTagBytes : 0;
}

// Header and control part are believed from here on. False when the session ended.
bool Session::open_control() {
  if (control_tag_bytes() == 0) return true;
  const FrameTag tag = tag_at(control_.data() + header_.control_bytes);
  control_.resize(header_.control_bytes);
  opener_->begin();
  opener_->associate(header_bytes_);
  opener_->process(control_, control_.data());
  return opener_->opens(tag) || tampering();
}

// What has come of a payload, in the place where it stays.
void Session::take_in(MutableBytes arrived) {
  if (opener_) opener_->process(arrived, arrived.data());
}

bool Session::take_payload_tag() {
  const FrameTag tag = tag_at(ahead_.get() + ahead_begin_);
  ahead_begin_ += kTagBytes;
  return opener_->opens(tag) ? finish_frame() : tampering();
}

// Ends the session; false, as those who ask return it.
bool Session::tampering() {
  tampered_ = true;
  breach(Status(ErrorCode::kPeerLost,
                {.what = "the bytes of a connection were tampered with on their way",
                 .where = describe(),
                 .expected = "frames with the tags that the job's secret gives",
                 .got = "a wrong tag",
                 .fix = "find out who can change the traffic between the two processes; "
                        "FLEET_FRAME_ENCRYPTION=on also hides it"}));
  return false;
}

void Session::discard_payload() {
  if (part_ != Part::kPayload) return;
  target_ = PayloadTarget::discard();
}

bool Session::finish_frame() {
  part_ = Part::kHeader;
  if (state_ == State::kHandshake) return on_handshake_frame();
  switch (header_.verb) {
    case Verb::kPing: {
      Message pong = make_reply(header_);
      pong.header.verb = Verb::kPong;
      send(std::move(pong));
      break;
    }
    case Verb::kGoodbye:
      end(Status());
      return false;
    case Verb::kRefuse: {
      Status said = decode_status(control_);
      end(said);
      return false;
    }
    default:
      hand_over();
  }
  after_frame();
  return state_ != State::kClosed;
}

void Session::hand_over() {
  const PayloadTarget target = std::move(target_);
  target_ = {};
  if (options_.side == Side::kConnecting) {
    return handler_->on_frame(*this, header_, control_, target.memory);
  }
  try {
    handler_->on_frame(*this, header_, control_, target.memory);
  } catch (...) {
    answer_exception(caught_status(kWhere));
  }
}

void Session::answer_exception(const Status& status) {
  if (header_.request_id == 0) return end(status);
  send(make_error_reply(header_, status));
}

void Session::after_frame() {
  if (state_ == State::kClosed) return;
  if (options_.side == Side::kAccepting && queue_.size() > options_.limits.pause_queued_frames) {
    write_turn();
    reading_paused_ = queue_.size() > options_.limits.pause_queued_frames;
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

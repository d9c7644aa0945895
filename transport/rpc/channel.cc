#include "transport/rpc/channel.h"

#include <algorithm>

#include "base/hash.h"
#include "base/strings.h"
#include "transport/session/same_bits.h"

namespace fleet::transport {
namespace {

constexpr Duration kMaxTick = std::chrono::seconds(1);
constexpr Duration kMinTick = std::chrono::milliseconds(5);
constexpr Duration kFirstNotice = std::chrono::seconds(3);
// A connection that somebody else holds or changes is told of again after this long.
constexpr Duration kUnsafeNotice = std::chrono::seconds(30);

Duration tick_for(Duration deadline) {
  return std::clamp(deadline / 16, kMinTick, kMaxTick);
}

long long milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

std::string verb_of(const Request& request) {
  return request.frames.empty() ? std::string("request")
                                : std::string(verb_name(request.frames[0].header.verb));
}

std::string brief(const Status& failure) {
  const ErrorText& text = failure.text();
  return str_cat(text.what, text.got.empty() ? "" : ": ", text.got);
}

// Refusals that another attempt cannot change.
bool is_final(const Status& why) {
  return why.code() == ErrorCode::kHandshakeRefused || why.code() == ErrorCode::kAuthentication ||
         why.code() == ErrorCode::kBadFrame;
}

}  // namespace

Channel::Channel(Loop& loop, Network& network, ChannelOptions options, ChannelEvents events,
                 Logger logger)
    : loop_(loop),
      tick_interval_(tick_for(options.rpc_deadline)),
      network_(network),
      jitter_(static_cast<uint32_t>(mix64(options.hello.incarnation +
                                          options.hello.lane_index * 977U + options.endpoint.port) |
                                    1U)),
      options_(std::move(options)),
      events_(std::move(events)),
      logger_(std::move(logger)) {}

Channel::~Channel() {
  *alive_ = false;
  stop_timers();
  connector_.reset();
  if (session_) session_->close();
}

void Channel::stop_timers() {
  if (connect_timer_) loop_.cancel(*connect_timer_);
  if (tick_timer_) loop_.cancel(*tick_timer_);
  connect_timer_.reset();
  tick_timer_.reset();
}

bool Channel::open() const {
  return session_ && session_->open();
}

std::string Channel::describe() const {
  std::string where = options_.endpoint.to_string();
  if (!options_.hello.callee) return where;
  return str_cat(options_.hello.callee->to_string(), " at ", where);
}

void Channel::start() {
  if (started_) return;
  started_ = true;
  connect();
}

// ---- connecting

void Channel::connect() {
  if (routes_.empty()) routes_ = network_.routes(options_.endpoint);
  route_ = 0;
  unix_refused_ = looked_again_ = false;
  try_route();
}

void Channel::try_route() {
  connect_timer_ = loop_.call_after(options_.handshake_timeout, [this] {
    connect_timer_.reset();
    connector_.reset();
    route_failed(Status(ErrorCode::kDeadline, {.what = "connecting took too long",
                                               .where = describe(),
                                               .expected = {},
                                               .got = {},
                                               .fix = {}}));
  });
  connector_ = network_.connect(loop_, routes_[route_], [this](Result<std::unique_ptr<Link>> link) {
    on_connected(std::move(link));
  });
}

void Channel::on_connected(Result<std::unique_ptr<Link>> link) {
  if (connect_timer_) loop_.cancel(*connect_timer_);
  connect_timer_.reset();
  connector_.reset();
  if (!link.ok()) return route_failed(link.status());
  // A server listens on its Unix address first: one that was not there a moment ago is there now.
  if (route_ > 0 && unix_refused_ && !looked_again_) {
    looked_again_ = true;
    route_ = 0;
    return try_route();
  }
  const Status user =
      check_same_user(*link.value(), "holds the server's Unix address; nothing is said to it",
                      "end that process (ss -lxp shows it), or set FLEET_TRANSPORT=tcp");
  if (!user.ok()) return route_failed(user);
  if (options_.send_buffer > 0) link.value()->set_send_buffer(options_.send_buffer);
  SessionOptions session;
  session.side = Side::kConnecting;
  session.handshake.hello = options_.hello;
  session.handshake.secret = options_.secret;
  session.handshake.random = options_.random;
  session.handshake_timeout = options_.handshake_timeout;
  session.limits = options_.limits;
  SessionHandler& handler = *this;
  session_ = std::make_shared<Session>(loop_, std::move(link.value()), handler, std::move(session));
  session_->start();
}

void Channel::route_failed(const Status& why) {
  last_failure_ = why;
  if (routes_[route_].kind == LinkKind::kUnix) unix_refused_ = is_connection_refused(why);
  if (route_ + 1 < routes_.size()) {
    if (why.code() == ErrorCode::kAuthentication) tell_unsafe(why);
    ++route_;
    return try_route();
  }
  // A Unix address may be another job's; only what the last route says is final.
  if (is_final(why)) return refuse(why);
  tell_unreachable();
  schedule_connect();
  if (events_.on_attempt_failed) events_.on_attempt_failed(why);
}

// One lane of a process to a server is enough.
void Channel::tell_unsafe(const Status& why) {
  const TimePoint now = loop_.now();
  if (!options_.tell_unreachable || (unsafe_told_ && now - *unsafe_told_ < kUnsafeNotice)) return;
  unsafe_told_ = now;
  logger_.warning("transport", why.text().what,
                  {{"peer", describe()},
                   {"link", why.text().where},
                   {"expected", why.text().expected},
                   {"got", why.text().got},
                   {"fix", why.text().fix}});
}

void Channel::tell_unreachable() {
  if (!unreachable_since_) {
    unreachable_since_ = loop_.now();
    next_notice_ = kFirstNotice;
  }
  const Duration elapsed = loop_.now() - *unreachable_since_;
  if (elapsed < next_notice_ || !options_.tell_unreachable) return;
  next_notice_ *= 2;
  logger_.warning("transport", "not connected yet; trying again until the deadline",
                  {{"peer", describe()},
                   {"lane", options_.hello.lane == LaneKind::kControl ? "control" : "data"},
                   {"for_ms", str_cat(milliseconds(elapsed))},
                   {"deadline_ms", str_cat(milliseconds(options_.rpc_deadline))},
                   {"why", brief(last_failure_)}});
}

void Channel::schedule_connect() {
  backoff_ = backoff_ == Duration(0) ? options_.backoff_min
                                     : std::min(backoff_ * 8 / 5, options_.backoff_max);
  // Half of the pause is drawn, so that many clients do not come back at once.
  const auto half = static_cast<uint64_t>(backoff_.count() / 2);
  const Duration pause(static_cast<int64_t>(half + jitter_() % (half + 1)));
  connect_timer_ = loop_.call_after(pause, [this] {
    connect_timer_.reset();
    connect();
  });
}

void Channel::refuse(const Status& why) {
  fatal_ = why;
  fail_all(why);
  if (events_.on_refused) events_.on_refused(why);
}

void Channel::tell_differing_bits(const Hello& peer) const {
  const std::string here = differing_bits(options_.hello, peer);
  if (here.empty()) return;
  logger_.warning(
      "transport", "machines or builds differ, so results may differ in bits",
      {{"here", here}, {"there", differing_bits(peer, options_.hello)}, {"peer", describe()}});
}

Loop* Channel::on_open(Session& session) {
  ++connections_;
  ping_bytes_ = 0;
  last_failure_ = {};
  unreachable_since_.reset();
  if (connections_ == 1 && options_.tell_unreachable) tell_differing_bits(session.peer());
  for (const auto& [id, pending] : pending_) send_request(id, *pending);
  session.flush();
  if (events_.on_open) events_.on_open(session.peer());
  maybe_goodbye();
  return nullptr;
}

void Channel::on_closed(Session& session, const Status& why) {
  const auto keep = std::move(session_);
  forget_session();
  if (session.tampered()) tell_unsafe(why);
  if (!session.was_open()) return route_failed(why);
  last_failure_ = why.ok() ? Status(ErrorCode::kPeerLost, {.what = "the other side said goodbye",
                                                           .where = describe(),
                                                           .expected = {},
                                                           .got = {},
                                                           .fix = {}})
                           : why;
  if (is_final(why)) return refuse(why);
  if (finishing_ && pending_.empty()) return;
  reconnect();
  const Status reason = last_failure_;
  if (events_.on_lost) events_.on_lost(reason);
}

void Channel::forget_session() {
  session_.reset();
  reading_for_ = 0;
  for (const auto& [id, pending] : pending_) {
    pending->first_frame = 0;
    pending->last_frame = 0;
    pending->answers = 0;
  }
}

// At once the first time: a process that lives has its listener open. With a pause when the last
// connection broke before anything was answered on it.
void Channel::reconnect() {
  if (connect_timer_) return;
  if (backoff_ != Duration(0)) return schedule_connect();
  backoff_ = options_.backoff_min;
  connect_timer_ = loop_.call_after(Duration(0), [this] {
    connect_timer_.reset();
    connect();
  });
}

void Channel::drop_session() {
  if (!session_) return;
  session_->close();
  forget_session();
  reconnect();
}

// ---- requests

std::shared_ptr<Channel::Pending> Channel::find(uint64_t id) const {
  const auto found = pending_.find(id);
  return found == pending_.end() ? nullptr : found->second;
}

uint64_t Channel::submit(Request request) {
  const uint64_t id = next_id_++;
  if (!fatal_.ok()) {
    loop_.post([alive = alive_, done = std::move(request.on_done), why = fatal_] {
      if (*alive && done) done(why);
    });
    return id;
  }
  auto pending = std::make_shared<Pending>();
  pending->request = std::move(request);
  pending->deadline =
      pending->request.deadline > Duration(0) ? pending->request.deadline : options_.rpc_deadline;
  pending_.emplace(id, pending);
  if (open()) {
    send_request(id, *pending);
    session_->flush();
  }
  const Duration interval = tick_for(pending->deadline);
  if (tick_timer_ && interval < tick_interval_) {
    loop_.cancel(*tick_timer_);
    tick_timer_.reset();
  }
  tick_interval_ = std::min(interval, tick_interval_);
  arm_tick();
  return id;
}

void Channel::send_request(uint64_t id, Pending& pending) {
  pending.first_frame = session_->frames_queued();
  for (Message& frame : pending.request.frames) {
    // Frames stay with the request, because a reconnect sends them again.
    Message copy = frame;
    copy.header.request_id = id;
    session_->send(std::move(copy), false);
  }
  ++pending.sends;
  pending.last_frame = session_->frames_queued();
}

void Channel::notify(Message message) {
  if (!open()) return;
  message.header.request_id = 0;
  session_->send(std::move(message));
}

// Takes a request out, and sees to it that nothing reads or writes its memory any more.
std::shared_ptr<Channel::Pending> Channel::take(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return nullptr;
  auto pending = std::move(found->second);
  pending_.erase(found);
  if (session_) {
    if (reading_for_ == id) session_->discard_payload();
    if (session_->frames_written() < pending->last_frame) drop_session();
  }
  return pending;
}

void Channel::complete(uint64_t id, const Status& status) {
  const auto pending = take(id);
  if (pending && pending->request.on_done) pending->request.on_done(status);
}

void Channel::cancel(uint64_t request) {
  take(request);
}

void Channel::fail_all(const Status& why) {
  if (fatal_.ok()) fatal_ = why;
  if (connect_timer_) loop_.cancel(*connect_timer_);
  connect_timer_.reset();
  connector_.reset();
  std::vector<uint64_t> ids;
  for (const auto& [id, pending] : pending_) ids.push_back(id);
  const auto alive = alive_;
  for (const uint64_t id : ids) {
    complete(id, why);
    if (!*alive) return;
  }
  if (connect_timer_) loop_.cancel(*connect_timer_);
  connect_timer_.reset();
}

void Channel::finish() {
  finishing_ = true;
  maybe_goodbye();
}

void Channel::maybe_goodbye() {
  if (!finishing_ || !pending_.empty()) return;
  stop_timers();
  connector_.reset();
  if (!session_) return;
  const auto session = std::move(session_);
  session_.reset();
  session->finish();
}

// ---- answers

PayloadTarget Channel::prepare_payload(Session&, const FrameHeader& header, ConstBytes control) {
  const auto pending = header.verb == Verb::kReply ? find(header.request_id) : nullptr;
  // An answer that nobody waits for any more, such as the second one after a reconnect.
  if (!pending || !pending->request.reply_target) return PayloadTarget::discard();
  reading_for_ = header.request_id;
  return pending->request.reply_target(header, control);
}

void Channel::on_frame(Session&, const FrameHeader& header, ConstBytes control,
                       MutableBytes payload) {
  reading_for_ = 0;
  const bool answers = header.verb == Verb::kReply || header.verb == Verb::kErrorReply;
  if (!answers) {
    note_answer();
    if (header.verb != Verb::kPong && events_.on_notice) events_.on_notice(header, control);
    return;
  }
  const auto pending = find(header.request_id);
  if (!pending) return;
  if (++pending->answers > pending->most_answers) {
    pending->most_answers = pending->answers;
    note_answer();
  }
  const auto alive = alive_;
  if (header.verb == Verb::kErrorReply) {
    complete(header.request_id, decode_status(control));
  } else {
    if (pending->request.on_reply) pending->request.on_reply(header, control, payload);
    if (!*alive) return;
    if (!header.has(kFlagMore)) complete(header.request_id, Status());
  }
  if (*alive) maybe_goodbye();
}

// ---- deadlines

void Channel::note_answer() {
  answered_ = true;
  backoff_ = Duration(0);
}

void Channel::arm_tick() {
  if (tick_timer_) return;
  last_tick_ = loop_.now();
  tick_timer_ = loop_.call_after(tick_interval_, [this] {
    tick_timer_.reset();
    tick();
  });
}

bool Channel::moved_since(Mark& mark) const {
  Mark now;
  if (open()) {
    now = {connections_, session_->bytes_written() + session_->bytes_read() - ping_bytes_};
  }
  const Mark before = std::exchange(mark, now);
  return open() && before.connection == now.connection && now.bytes > before.bytes;
}

bool Channel::newly_left(Pending& pending, bool moved) const {
  const uint64_t written = session_ ? session_->frames_written() : 0;
  const uint64_t left =
      std::min(written, pending.last_frame) - std::min(written, pending.first_frame);
  if (left > pending.most_left) {
    pending.most_left = left;
    return true;
  }
  // Inside of a long frame.
  return moved && pending.sends == 1 && written < pending.last_frame;
}

void Channel::add_silence(Pending& pending, Duration elapsed, bool moved) {
  if (moved && pending.resending < pending.deadline) {
    pending.resending += elapsed;
  } else {
    pending.silent += elapsed;
  }
}

void Channel::tick() {
  if (pending_.empty()) return;
  // Time in which nobody drove the loop (a long computation, a stopped process) does not count.
  const Duration elapsed = std::min<Duration>(loop_.now() - last_tick_, tick_interval_ * 2);
  const bool moved = moved_since(ticked_);
  bool progress = std::exchange(answered_, false);
  std::vector<uint64_t> expired;
  for (const auto& [id, pending] : pending_) {
    // Requests leave in the order of their numbers.
    progress |= newly_left(*pending, moved);
    if (progress) {
      pending->silent = pending->resending = Duration(0);
    } else {
      add_silence(*pending, elapsed, moved);
    }
    if (pending->silent >= pending->deadline) expired.push_back(id);
  }
  const auto alive = alive_;
  for (const uint64_t id : expired) {
    const auto pending = find(id);
    if (pending) complete(id, deadline_status(*pending));
    if (!*alive) return;
  }
  if (!pending_.empty()) {
    send_ping();
    arm_tick();
  }
  maybe_goodbye();
}

// A server that waits for other processes before it answers proves that it lives this way.
void Channel::send_ping() {
  if (!open() || session_->queued_frames() != 0) return;
  Message ping;
  ping.header.verb = Verb::kPing;
  const uint64_t before = session_->bytes_written();
  session_->send(std::move(ping));
  ping_bytes_ += session_->bytes_written() - before;
}

std::vector<std::string> Channel::waits() const {
  std::vector<std::string> lines;
  for (const auto& [id, pending] : pending_) {
    lines.push_back(str_cat(verb_of(pending->request), " waits for ", describe(),
                            open() ? "" : " (not connected)", ", silent for ",
                            milliseconds(pending->silent), " ms"));
  }
  return lines;
}

Status Channel::deadline_status(const Pending& pending) const {
  const std::string verb = verb_of(pending.request);
  return Status(ErrorCode::kDeadline,
                {.what = str_cat("a request (", verb, ") made no progress for ",
                                 milliseconds(pending.deadline), " ms"),
                 .where = describe(),
                 .expected = open() ? "an answer" : "a connection",
                 .got = last_failure_.ok() ? std::string("nothing") : brief(last_failure_),
                 .fix = "check that the process is up and reachable; FLAGS_rpc_deadline sets the "
                        "bound in ms"});
}

}  // namespace fleet::transport

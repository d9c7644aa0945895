#include "transport/socket_collective/socket_peers.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/archive.h"
#include "base/process/usable_cores.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

// How long a waiting thread looks again and again before it sleeps. It offers its core in between:
// where other programs compete for it, ranks that do not are held back a time slice for each
// message.
constexpr Duration kSpin = std::chrono::microseconds(100);
// A message that was offered, and asked for.
constexpr uint32_t kFlagAskedFor = kFlagUser0;

// Control part of kCollectiveMessage and kCollectiveOffer. The header's step is the operation's
// sequence number, its variable the message's number.
struct MessageNote {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ElementType type = ElementType::kFloat32;
  uint64_t count = 0;
  uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(kind, type, count, bytes);
  }
};

// Control part of the answer to kCollectiveJoin.
struct Grant {
  uint64_t bytes = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(bytes);
  }
};

Message frame_of(Verb verb, const MessageId& id) {
  Message frame;
  frame.header.verb = verb;
  frame.header.step = id.operation.sequence;
  frame.header.variable = id.number;
  frame.control =
      encode(MessageNote{id.operation.kind, id.operation.type, id.operation.count, id.bytes});
  return frame;
}

Result<MessageId> id_in(const FrameHeader& header, ConstBytes control) {
  const auto note = decode<MessageNote>(control, "message of a collective operation");
  if (!note.ok()) return note.status();
  const MessageNote& said = note.value();
  const bool sized = header.verb == Verb::kCollectiveOffer ? header.payload_bytes == 0
                                                           : header.payload_bytes == said.bytes;
  if (said.kind > CollectiveKind::kBarrier || said.type > ElementType::kBFloat16 || !sized) {
    return Status(ErrorCode::kBadFrame,
                  {.what = "a message of a collective operation is not valid",
                   .where = str_cat("operation ", header.step),
                   .expected = "a known kind, a known type and its size",
                   .got = str_cat(header.payload_bytes, " bytes of ", said.bytes),
                   .fix = {}});
  }
  return MessageId{{header.step, said.kind, said.type, said.count}, header.variable, said.bytes};
}

Status no_such_rank(std::string_view call, int rank, int size) {
  return Status(ErrorCode::kInvalidArgument, {.what = "there is no such other rank",
                                              .where = std::string(call),
                                              .expected = str_cat("another rank below ", size),
                                              .got = str_cat("rank ", rank),
                                              .fix = {}});
}

}  // namespace

// ---- message sets

class SocketPeers::Messages final : public MessageSet {
 public:
  Messages(SocketPeers& peers, const OperationId& operation) : peers_(peers), id_(operation) {
    const Status begun = peers_.matcher_.begin(operation);
    if (!begun.ok()) peers_.fail(begun);
  }
  ~Messages() override;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  bool test() override;
  void unfinished(std::vector<int>& ranks) override;

 private:
  struct Send {
    int to = 0;
    MessageId id;
    const std::byte* bytes = nullptr;
    uint64_t request = 0;
    bool granted = false;
    bool done = false;
  };
  struct Receive {
    int from = 0;
    uint32_t number = 0;
  };

  void submit(Send& send, Verb verb, uint32_t flags);
  void on_answer(Send& send, Verb verb, const Status& status);

  SocketPeers& peers_;
  OperationId id_;
  size_t open_ = 0;  // sends and receives that are not done
  std::deque<Send> sends_;
  std::vector<Receive> receives_;
};

// What the sender was granted for a message that it takes back stays used: the receiver may have
// it.
SocketPeers::Messages::~Messages() {
  for (const Send& send : sends_) {
    if (send.done) continue;
    Peer& peer = peers_.peer(send.to);
    --peer.sends;
    peer.channel->cancel(send.request);
  }
  for (const auto& [from, number] : receives_) {
    const bool reading = peers_.matcher_.abandon(id_.sequence, from, number);
    if (reading && peers_.peer(from).session != nullptr) {
      peers_.peer(from).session->discard_payload();
    }
  }
  peers_.matcher_.end(id_.sequence);
}

void SocketPeers::Messages::send(int to, std::span<const std::byte> bytes) {
  peers_.check_rank(to, "MessageSet::send");
  Peer& peer = peers_.peer(to);
  if (!peer.gone.ok()) peers_.fail(peer.gone);
  peers_.failure_.throw_if_error();
  const uint32_t number = peers_.matcher_.next_send(id_.sequence, to);
  Send& send = sends_.emplace_back(Send{to, {id_, number, bytes.size()}, bytes.data()});
  ++open_;
  ++peer.sends;
  const uint64_t cost = MessageMatcher::early_cost(bytes.size());
  send.granted = cost <= peer.grant - peer.used;
  if (send.granted) peer.used += cost;
  submit(send, send.granted ? Verb::kCollectiveMessage : Verb::kCollectiveOffer, 0);
}

void SocketPeers::Messages::submit(Send& send, Verb verb, uint32_t flags) {
  Message frame = frame_of(verb, send.id);
  frame.header.flags = flags;
  if (verb == Verb::kCollectiveMessage) frame.payload = Payload(send.bytes, send.id.bytes, nullptr);
  Request request;
  request.frames.push_back(std::move(frame));
  request.on_done = [this, &send, verb](const Status& status) { on_answer(send, verb, status); };
  send.request = peers_.peer(send.to).channel->submit(std::move(request));
}

void SocketPeers::Messages::on_answer(Send& send, Verb verb, const Status& status) {
  if (!status.ok()) return peers_.fail_request(send.to, status);
  if (verb == Verb::kCollectiveOffer) {
    return submit(send, Verb::kCollectiveMessage, kFlagAskedFor);
  }
  Peer& peer = peers_.peer(send.to);
  if (send.granted) peer.used -= MessageMatcher::early_cost(send.id.bytes);
  --peer.sends;
  --open_;
  ++peers_.sent_;
  send.done = true;
}

void SocketPeers::Messages::receive(int from, std::span<std::byte> bytes) {
  peers_.check_rank(from, "MessageSet::receive");
  peers_.failure_.throw_if_error();
  const auto number = peers_.matcher_.post(id_.sequence, from, bytes, open_);
  if (!number.ok()) {
    peers_.fail(number.status());
    peers_.failure_.throw_if_error();
  }
  receives_.push_back({from, number.value()});
  peers_.send_answers();
  const Peer& peer = peers_.peer(from);
  if (peer.gone.ok() || peers_.matcher_.is_done(id_.sequence, from, number.value())) return;
  peers_.fail(peer.gone);
  peers_.failure_.throw_if_error();
}

bool SocketPeers::Messages::test() {
  peers_.failure_.throw_if_error();
  if (open_ > 0) return false;
  sends_.clear();
  receives_.clear();
  return true;
}

void SocketPeers::Messages::unfinished(std::vector<int>& ranks) {
  const size_t before = ranks.size();
  for (const auto& [from, number] : receives_) {
    if (!peers_.matcher_.is_done(id_.sequence, from, number)) ranks.push_back(from);
  }
  if (ranks.size() != before) return;
  for (const Send& send : sends_) {
    if (!send.done) ranks.push_back(send.to);
  }
}

std::unique_ptr<MessageSet> SocketPeers::messages(const OperationId& operation) {
  failure_.throw_if_error();
  auto made = std::make_unique<Messages>(*this, operation);
  failure_.throw_if_error();
  return made;
}

// ---- making the group

SocketPeers::SocketPeers(DrivenLoop& loop, Network& network, SocketPeersOptions options,
                         Logger logger)
    : loop_(loop),
      network_(network),
      options_(std::move(options)),
      logger_(std::move(logger)),
      rank_(static_cast<int>(options_.hello.member.index)),
      peers_(options_.hello.worker_num),
      matcher_(rank_, size(), grant_of_each()),
      server_(network, ServerLane{&loop, this}, ServerLane{&loop, this}, server_options(),
              logger_) {}

SocketPeers::~SocketPeers() {
  *alive_ = false;
}

uint64_t SocketPeers::grant_of_each() const {
  return options_.early_bytes / std::max<uint64_t>(1, peers_.size() - 1);
}

ServerOptions SocketPeers::server_options() const {
  ServerOptions server;
  server.endpoint = options_.listen;
  server.hello = options_.hello;
  server.secret = options_.secret;
  server.handshake_timeout = options_.handshake_timeout;
  server.random = options_.random;
  return server;
}

Status SocketPeers::listen() {
  return server_.listen();
}

void SocketPeers::connect(const std::vector<Endpoint>& endpoints) {
  if (endpoints.size() != peers_.size()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "the endpoints are not one for each rank",
                 .where = "SocketPeers::connect",
                 .expected = str_cat(peers_.size(), " endpoints"),
                 .got = str_cat(endpoints.size()),
                 .fix = "give the endpoint of every rank, by rank, this one's too"});
  }
  endpoints_ = endpoints;
  const std::string& host = endpoints[static_cast<size_t>(rank_)].host;
  const auto here = std::count_if(endpoints.begin(), endpoints.end(),
                                  [&](const Endpoint& other) { return other.host == host; });
  spins_ = options_.spins && here <= usable_cores();
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) open_channel(other, endpoints[static_cast<size_t>(other)]);
  }
}

void SocketPeers::open_channel(int rank, const Endpoint& endpoint) {
  ChannelOptions channel;
  channel.endpoint = endpoint;
  channel.hello = options_.hello;
  channel.hello.lane = LaneKind::kData;
  channel.hello.lane_index = 0;
  channel.hello.callee = MemberId{PeerRole::kWorker, static_cast<uint32_t>(rank)};
  channel.secret = options_.secret;
  channel.rpc_deadline = options_.rpc_deadline;
  channel.handshake_timeout = options_.handshake_timeout;
  channel.random = options_.random;
  ChannelEvents events;
  events.on_open = [this, rank](const Hello&) {
    peer(rank).seen = true;
    peer(rank).refused_since.reset();
  };
  events.on_attempt_failed = [this, rank](const Status& why) { on_attempt_failed(rank, why); };
  events.on_refused = [this, rank](const Status& why) { fail_request(rank, why); };
  events.on_notice = [this, rank](const FrameHeader& header, ConstBytes control) {
    on_notice(rank, header, control);
  };
  peer(rank).channel =
      std::make_unique<Channel>(loop_, network_, std::move(channel), std::move(events), logger_);
  join(rank);
  peer(rank).channel->start();
}

void SocketPeers::join(int rank) {
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = Verb::kCollectiveJoin;
  const auto grant = std::make_shared<Grant>();
  request.on_reply = [grant](const FrameHeader&, ConstBytes control, MutableBytes) {
    const auto said = decode<Grant>(control, "answer to collective-join");
    if (said.ok()) *grant = said.value();
  };
  request.on_done = [this, rank, grant](const Status& status) {
    if (!status.ok()) return on_join_failed(rank, status);
    peer(rank).joined = true;
    peer(rank).grant = grant->bytes;
  };
  peer(rank).channel->submit(std::move(request));
}

bool SocketPeers::all_joined() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& other) { return !other.channel || other.joined; });
}

// ---- losing ranks

std::string SocketPeers::where(int rank) const {
  return str_cat("rank ", rank, " at ", endpoints_[static_cast<size_t>(rank)].to_string());
}

// Everybody who has not come is named in one error.
void SocketPeers::on_join_failed(int rank, const Status& why) {
  if (why.code() != ErrorCode::kDeadline) return fail_request(rank, why);
  std::vector<std::string> absent;
  for (int other = 0; other < size(); ++other) {
    if (peer(other).channel && !peer(other).joined) absent.push_back(where(other));
  }
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.rpc_deadline).count();
  fail(Status(ErrorCode::kPeerLost,
              {.what = str_cat("did not come to the group of ranks: ", fleet::join(absent, ", ")),
               .where = str_cat("rank ", rank_),
               .expected = str_cat("all ", size(), " ranks within ", ms, " ms"),
               .got = why.text().got,
               .fix = "see why it was not started, or why it ended; FLAGS_rpc_deadline sets the "
                      "bound in ms"}));
}

void SocketPeers::fail_request(int rank, const Status& why) {
  ErrorText text = why.text();
  if (why.code() == ErrorCode::kDeadline) {
    text.what = str_cat("rank ", rank, " does not answer");
    text.got = why.text().what;
  }
  if (text.where.find("rank ") == std::string::npos) {
    text.where = str_cat(where(rank), text.where.empty() ? "" : ", ", text.where);
  }
  fail(Status(why.code() == ErrorCode::kDeadline ? ErrorCode::kPeerSilent : why.code(),
              std::move(text)));
}

// A listener that refuses proves that its process is gone; one that was there before.
void SocketPeers::on_attempt_failed(int rank, const Status& why) {
  Peer& other = peer(rank);
  if (!other.seen || !other.gone.ok() || !is_connection_refused(why)) return;
  if (!other.refused_since) other.refused_since = loop_.now();
  if (loop_.now() - *other.refused_since < options_.refused_grace) return;
  lose(rank, Status(ErrorCode::kPeerLost,
                    {.what = other.left ? str_cat("rank ", rank, " has left the group")
                                        : str_cat("rank ", rank, " was lost"),
                     .where = where(rank),
                     .expected = "a process that listens",
                     .got = "connections to it are refused",
                     .fix = str_cat("read the log of rank ", rank)}));
}

void SocketPeers::lose(int rank, const Status& why) {
  Peer& other = peer(rank);
  other.gone = why;
  if (other.sends > 0 || matcher_.waiting_for(rank) > 0) fail(why);
  other.channel->fail_all(why);
}

void SocketPeers::on_notice(int rank, const FrameHeader& header, ConstBytes control) {
  if (header.verb != Verb::kCollectiveFailed) return;
  const Status said = decode_status(control);
  ErrorText text = said.text();
  text.where = str_cat(text.where, text.where.empty() ? "" : ", ", "as rank ", rank, " says");
  fail(Status(said.code(), std::move(text)));
}

void SocketPeers::fail(const Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  for (const DueAnswer& waiting : matcher_.take_waiting()) {
    answer(waiting.rank, waiting.request, why);
  }
  for (const Peer& other : peers_) {
    if (other.session != nullptr) tell_failure(*other.session);
  }
}

// On the lane from the other rank, where nothing stands before it.
void SocketPeers::tell_failure(Session& session) const {
  Message notice;
  notice.header.verb = Verb::kCollectiveFailed;
  notice.control = encode_status(failure_);
  session.send(std::move(notice));
}

void SocketPeers::failed(const Status& reason) {
  loop_.post([this, alive = alive_, reason] {
    if (*alive) fail(reason);
  });
}

void SocketPeers::give_up(std::vector<std::shared_ptr<const void>>) {
  // What failed() was told says more.
  loop_.poll();
  fail(Status(ErrorCode::kJobAborted, {.what = str_cat("rank ", rank_, " gave its operations up"),
                                       .where = str_cat("rank ", rank_),
                                       .expected = {},
                                       .got = {},
                                       .fix = str_cat("read the log of rank ", rank_)}));
  for (const Peer& other : peers_) {
    if (other.channel) other.channel->fail_all(failure_);
    if (other.session != nullptr) other.session->discard_payload();
  }
}

// ---- the lanes from the other ranks

Status SocketPeers::admit(const Hello& hello) {
  const bool fits = hello.member.role == PeerRole::kWorker && hello.lane == LaneKind::kData &&
                    static_cast<int>(hello.member.index) != rank_;
  if (fits) return incarnations_.admit(hello);
  return Status(ErrorCode::kHandshakeRefused,
                {.what = "only the other ranks of the job connect here",
                 .where = str_cat("rank ", rank_),
                 .expected = "a data lane of another worker",
                 .got = str_cat(hello.lane == LaneKind::kData ? "a data" : "a control", " lane of ",
                                hello.member.to_string()),
                 .fix = "give every rank an index of its own"});
}

Loop* SocketPeers::on_open(Session& session) {
  const int from = static_cast<int>(session.peer().member.index);
  Session* const before = std::exchange(peer(from).session, &session);
  peer(from).seen = true;
  // The one that it replaces may not have noticed its end.
  if (before != nullptr) before->discard_payload();
  matcher_.interrupted(from);
  if (!failure_.ok()) tell_failure(session);
  return nullptr;
}

PayloadTarget SocketPeers::prepare_payload(Session& session, const FrameHeader& header,
                                           ConstBytes control) {
  const int from = static_cast<int>(session.peer().member.index);
  if (peer(from).session != &session || !failure_.ok()) return PayloadTarget::discard();
  const auto id = id_in(header, control);
  if (!id.ok()) return PayloadTarget::refuse(id.status());
  if (const Status same = matcher_.compare(from, id.value()); !same.ok()) {
    fail(same);
    return PayloadTarget::discard();
  }
  return matcher_.target(from, id.value(), header.has(kFlagAskedFor));
}

void SocketPeers::on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                           MutableBytes) {
  const int from = static_cast<int>(session.peer().member.index);
  if (peer(from).session != &session) return;
  if (header.verb == Verb::kCollectiveJoin) {
    Message reply = make_reply(header);
    reply.control = encode(Grant{grant_of_each()});
    return session.send(std::move(reply));
  }
  Status taken = failure_;
  if (taken.ok()) taken = take_message(from, header, control);
  if (!taken.ok()) return session.send(make_error_reply(header, taken));
  send_answers();
}

Status SocketPeers::take_message(int from, const FrameHeader& header, ConstBytes control) {
  if (header.verb != Verb::kCollectiveMessage && header.verb != Verb::kCollectiveOffer) {
    return Status(ErrorCode::kNotSupported, {.what = "a rank cannot answer this request",
                                             .where = str_cat("rank ", rank_),
                                             .expected = "a message of a collective operation",
                                             .got = std::string(verb_name(header.verb)),
                                             .fix = {}});
  }
  const auto id = id_in(header, control);
  if (!id.ok()) return id.status();
  if (Status same = matcher_.compare(from, id.value()); !same.ok()) {
    fail(same);
    return same;
  }
  return header.verb == Verb::kCollectiveOffer
             ? matcher_.offered(from, id.value(), header.request_id)
             : matcher_.arrived(from, id.value(), header.request_id);
}

void SocketPeers::send_answers() {
  for (const DueAnswer& due : matcher_.take_answers()) answer(due.rank, due.request, Status());
}

// Where the connection is gone, the request comes again on the next one.
void SocketPeers::answer(int rank, uint64_t request, const Status& status) {
  Session* const session = peer(rank).session;
  if (session == nullptr) return;
  FrameHeader asked;
  asked.request_id = request;
  session->send(status.ok() ? make_reply(asked) : make_error_reply(asked, status));
}

void SocketPeers::on_closed(Session& session, const Status& why) {
  const int from = static_cast<int>(session.peer().member.index);
  if (peer(from).session != &session) return;
  peer(from).session = nullptr;
  matcher_.interrupted(from);
  if (!why.ok()) return;
  peer(from).left = true;
  if (matcher_.waiting_for(from) == 0) return;
  fail(Status(ErrorCode::kPeerLost,
              {.what = str_cat("rank ", from, " has left the group"),
               .where = where(from),
               .expected = "its messages of operations under way",
               .got = "a goodbye",
               .fix = str_cat("read the log of rank ", from, ", which takes another path")}));
}

// ---- driving

void SocketPeers::poll() {
  loop_.poll();
  failure_.throw_if_error();
}

void SocketPeers::rest(Duration idle, TimePoint deadline) {
  if (spins_ && idle < kSpin) {
    sched_yield();
    return;
  }
  const uint64_t before = progress();
  loop_.run_until([&] { return progress() != before || !failure_.ok(); }, deadline);
}

void SocketPeers::begin_to_leave() {
  for (const Peer& other : peers_) {
    if (other.channel) other.channel->finish();
  }
}

bool SocketPeers::everybody_left() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& other) {
    return !other.channel || ((other.left || !other.gone.ok()) && other.channel->pending() == 0);
  });
}

bool SocketPeers::leave(Duration patience) {
  begin_to_leave();
  const auto over = [this] { return everybody_left() || !failure_.ok(); };
  return loop_.run_until(over, loop_.now() + patience) && failure_.ok();
}

void SocketPeers::check_rank(int rank, std::string_view call) const {
  if (rank < 0 || rank >= size() || rank == rank_) {
    no_such_rank(call, rank, size()).throw_if_error();
  }
  if (peer(rank).channel) return;
  throw_error(ErrorCode::kPrecondition, {.what = "the ranks are not connected yet",
                                         .where = std::string(call),
                                         .expected = "SocketPeers::connect before",
                                         .got = "no call of it",
                                         .fix = {}});
}

}  // namespace fleet::transport

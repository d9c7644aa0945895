#include "transport/rpc/server.h"

#include <algorithm>
#include <atomic>

#include "base/strings.h"

namespace fleet::transport {

namespace {

constexpr uint64_t kRefusalBurst = 10;
constexpr Duration kRefusalInterval = std::chrono::seconds(10);

size_t handshakes_of(const ServerOptions& options) {
  constexpr size_t kLanes = 8;
  constexpr size_t kFewest = 64;
  const size_t processes = size_t{options.hello.worker_num} + options.hello.server_num;
  return options.max_handshakes != 0 ? options.max_handshakes : kFewest + kLanes * processes;
}

}  // namespace

Status ServerHandler::admit(const Hello&) {
  return {};
}

// The sessions of one loop. Touched on that loop only.
class Server::Lane final : public SessionHandler {
 public:
  Lane(ServerLane where, Logger logger) : where_(where), logger_(std::move(logger)) {}

  Loop& loop() const { return *where_.loop; }

  Loop* on_open(Session& session) override {
    if (finished_) {
      session.close();
      return nullptr;
    }
    sessions_.emplace(&session, session.shared_from_this());
    return where_.handler->on_open(session);
  }
  PayloadTarget prepare_payload(Session& session, const FrameHeader& header,
                                ConstBytes control) override {
    return where_.handler->prepare_payload(session, header, control);
  }
  void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                MutableBytes payload) override {
    where_.handler->on_frame(session, header, control, payload);
  }
  void on_closed(Session& session, const Status& why) override {
    const auto found = sessions_.find(&session);
    if (found == sessions_.end()) return;
    if (session.tampered()) {
      logger_.warning("transport", why.text().what,
                      {{"peer", session.describe()}, {"got", why.text().got}});
    }
    const auto keep = found->second;
    sessions_.erase(found);
    where_.handler->on_closed(session, why);
  }

  void finish() {
    finished_ = true;
    const auto sessions = std::move(sessions_);
    sessions_.clear();
    for (const auto& [key, session] : sessions) session->finish();
  }
  void close() {
    finished_ = true;
    const auto sessions = std::move(sessions_);
    sessions_.clear();
    for (const auto& [key, session] : sessions) session->close();
  }

 private:
  ServerLane where_;
  Logger logger_;
  bool finished_ = false;
  std::map<Session*, std::shared_ptr<Session>> sessions_;
};

// Connections that have not yet proved who they are. On the control loop.
class Server::Gate final : public SessionHandler {
 public:
  explicit Gate(Server& server) : server_(server), waiting_(server.options_.max_handshakes) {}

  void add(std::unique_ptr<Link> link) {
    std::string source = source_of(link->peer_name());
    SessionOptions options;
    options.id = ++last_id_;
    options.side = Side::kAccepting;
    options.handshake.hello = server_.options_.hello;
    options.handshake.secret = server_.options_.secret;
    options.handshake.random = server_.options_.random;
    options.handshake.admit = [this](const Hello& peer) { return server_.admission_.admit(peer); };
    options.handshake_timeout = server_.options_.handshake_timeout;
    options.limits = server_.options_.limits;
    auto session =
        std::make_shared<Session>(server_.loop_, std::move(link), *this, std::move(options));
    if (const auto victim = waiting_.add(session, std::move(source))) {
      victim->close();
      server_.note_refusal(victim->describe(), crowded());
    }
    session->start();
  }

  Loop* on_open(Session& session) override {
    waiting_.prove(session.id());
    const auto keep = waiting_.remove(session.id());
    const auto& lane = server_.lane_of(session.peer());
    session.set_handler(*lane, lane);
    return &lane->loop();
  }
  PayloadTarget prepare_payload(Session&, const FrameHeader&, ConstBytes) override {
    return PayloadTarget::discard();
  }
  void on_frame(Session&, const FrameHeader&, ConstBytes, MutableBytes) override {}
  void on_closed(Session& session, const Status& why) override {
    const auto keep = waiting_.remove(session.id());
    server_.note_refusal(session.describe(), why, session.tampered());
  }

  void close() {
    for (const auto& [id, session] : waiting_.take_all()) session->close();
  }

 private:
  Status crowded() const {
    return Status(ErrorCode::kDeadline,
                  {.what = "too many connections have not proved themselves",
                   .where = {},
                   .expected = str_cat("at most ", server_.options_.max_handshakes, " at a time"),
                   .got = "more",
                   .fix = {}});
  }

  Server& server_;
  uint64_t last_id_ = 0;
  PendingSessions waiting_;
};

Server::Server(Network& network, ServerLane control, const std::vector<ServerLane>& data,
               ServerOptions options, Logger logger)
    : network_(network),
      options_(std::move(options)),
      logger_(std::move(logger)),
      control_(std::make_shared<Lane>(control, logger_)),
      loop_(*control.loop),
      admission_(*control.handler) {
  for (const ServerLane& lane : data) data_.push_back(std::make_shared<Lane>(lane, logger_));
  options_.max_handshakes = handshakes_of(options_);
  gate_ = std::make_unique<Gate>(*this);
}

Server::~Server() {
  stop_listening();
  gate_->close();
  control_->close();
  for (const auto& lane : data_) lane->close();
}

const std::shared_ptr<Server::Lane>& Server::lane_of(const Hello& peer) const {
  return peer.lane == LaneKind::kControl ? control_ : data_[peer.lane_index % data_.size()];
}

Status Server::listen() {
  if (options_.secret.mode == AuthMode::kSecret &&
      options_.secret.protection == FrameProtection::kNone) {
    logger_.warning("transport",
                    "FLEET_FRAME_INTEGRITY=off: whoever can reach the network between two "
                    "processes can change what they send, and nobody notices");
  }
  bound_ = options_.endpoint;
  auto routes = network_.routes(options_.endpoint);
  // Who reaches a server by TCP may rely on its Unix address. Only TCP finds a free port.
  const bool unix_first = bound_.port != 0;
  std::stable_sort(routes.begin(), routes.end(), [&](const Address& a, const Address& b) {
    return ((a.kind == LinkKind::kUnix) == unix_first) && a.kind != b.kind;
  });
  Status without_unix;
  for (Address route : routes) {
    route.endpoint.port = bound_.port;
    auto listener = network_.listen(
        loop_, route, [this](std::unique_ptr<Link> link) { on_accept(std::move(link)); });
    if (listener.ok()) {
      bound_.port = listener.value()->bound().port;
      listeners_.push_back(std::move(listener.value()));
    } else if (route.kind == LinkKind::kUnix && routes.size() > 1) {
      without_unix = listener.status();
    } else {
      listeners_.clear();
      return listener.status();
    }
  }
  if (!without_unix.ok()) {
    logger_.warning("transport", "no Unix socket beside the TCP port",
                    {{"port", bound_.port}, {"reason", without_unix.text().got}});
  }
  return {};
}

void Server::stop_listening() {
  listeners_.clear();
}

void Server::finish() {
  stop_listening();
  gate_->close();
  const auto finish = [](const std::shared_ptr<Lane>& lane) {
    lane->loop().post([lane] { lane->finish(); });
  };
  finish(control_);
  for (const auto& lane : data_) finish(lane);
}

void Server::on_accept(std::unique_ptr<Link> link) {
  const Status user =
      check_same_user(*link, "connected to the Unix address; nothing was said",
                      "a process of the job that runs as another user sets FLEET_TRANSPORT=tcp");
  if (!user.ok()) return note_refusal(link->peer_name(), user);
  gate_->add(std::move(link));
}

void Server::note_refusal(const std::string& peer, const Status& why, bool tampered) {
  ++refused_;
  last_refusal_ = why;
  // Whoever only knocks (a port scan, a peer that died while it connected) is not worth a warning.
  if (why.code() == ErrorCode::kPeerLost && !tampered) {
    logger_.debug("transport", "a connection ended before its handshake", {{"peer", peer}});
    return;
  }
  // Each kind has lines of its own, so that strangers do not hide a mistake of the job's.
  const auto limit = refusal_lines_.try_emplace(why.code(), kRefusalBurst, kRefusalInterval).first;
  const auto left_out = limit->second.take(loop_.now());
  if (!left_out) return;
  logger_.warning("transport", "a connection was refused",
                  {{"peer", peer},
                   {"left_out", *left_out},
                   {"reason", why.text().what},
                   {"expected", why.text().expected},
                   {"got", why.text().got}});
}

}  // namespace fleet::transport

#include "transport/rpc/server.h"

#include <algorithm>
#include <atomic>

#include "base/strings.h"

namespace fleet::transport {

namespace {

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
  explicit Lane(ServerLane where) : where_(where) {}

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
  bool finished_ = false;
  std::map<Session*, std::shared_ptr<Session>> sessions_;
};

// Connections that have not yet proved who they are. On the control loop.
class Server::Gate final : public SessionHandler {
 public:
  explicit Gate(Server& server) : server_(server) {}

  void add(std::unique_ptr<Link> link) {
    while (waiting_.size() >= server_.options_.max_handshakes) {
      const auto oldest = waiting_.begin();
      oldest->second->close();
      waiting_.erase(oldest);
    }
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
    waiting_.emplace(session->id(), session);
    session->start();
  }

  Loop* on_open(Session& session) override {
    const auto found = waiting_.find(session.id());
    const auto keep = found->second;
    waiting_.erase(found);
    const auto& lane = session.peer().lane == LaneKind::kControl ? server_.control_ : server_.data_;
    session.set_handler(*lane, lane);
    return &lane->loop();
  }
  PayloadTarget prepare_payload(Session&, const FrameHeader&, ConstBytes) override {
    return PayloadTarget::discard();
  }
  void on_frame(Session&, const FrameHeader&, ConstBytes, MutableBytes) override {}
  void on_closed(Session& session, const Status& why) override {
    waiting_.erase(session.id());
    server_.note_refusal(session.describe(), why);
  }

  void close() {
    const auto waiting = std::move(waiting_);
    waiting_.clear();
    for (const auto& [id, session] : waiting) session->close();
  }

 private:
  Server& server_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::shared_ptr<Session>> waiting_;
};

Server::Server(Network& network, ServerLane control, ServerLane data, ServerOptions options,
               Logger logger)
    : network_(network),
      options_(std::move(options)),
      logger_(std::move(logger)),
      control_(std::make_shared<Lane>(control)),
      data_(std::make_shared<Lane>(data)),
      loop_(*control.loop),
      admission_(*control.handler),
      gate_(std::make_unique<Gate>(*this)) {
  options_.max_handshakes = handshakes_of(options_);
}

Server::~Server() {
  stop_listening();
  gate_->close();
  control_->close();
  data_->close();
}

Status Server::listen() {
  bound_ = options_.endpoint;
  Status first_failure;
  // TCP comes first, because it is what chooses a free port.
  auto routes = network_.routes(options_.endpoint);
  std::stable_sort(routes.begin(), routes.end(), [](const Address& a, const Address& b) {
    return a.kind != LinkKind::kUnix && b.kind == LinkKind::kUnix;
  });
  for (Address route : routes) {
    route.endpoint.port = bound_.port;
    auto listener = network_.listen(
        loop_, route, [this](std::unique_ptr<Link> link) { on_accept(std::move(link)); });
    if (listener.ok()) {
      bound_.port = listener.value()->bound().port;
      listeners_.push_back(std::move(listener.value()));
      continue;
    }
    // Without its Unix address a server can still be reached.
    if (listeners_.empty()) return listener.status();
    logger_.warning("transport", "no Unix socket beside the TCP port",
                    {{"port", bound_.port}, {"reason", listener.status().text().got}});
  }
  return {};
}

void Server::stop_listening() {
  listeners_.clear();
}

void Server::finish() {
  stop_listening();
  gate_->close();
  for (const auto& lane : {control_, data_}) {
    lane->loop().post([lane] { lane->finish(); });
  }
}

void Server::on_accept(std::unique_ptr<Link> link) {
  gate_->add(std::move(link));
}

void Server::note_refusal(const std::string& peer, const Status& why) {
  ++refused_;
  last_refusal_ = why;
  // Whoever only knocks (a port scan, a peer that died while it connected) is not worth a warning.
  if (why.code() == ErrorCode::kPeerLost) {
    logger_.debug("transport", "a connection ended before its handshake", {{"peer", peer}});
    return;
  }
  logger_.warning("transport", "a connection was refused",
                  {{"peer", peer},
                   {"reason", why.text().what},
                   {"expected", why.text().expected},
                   {"got", why.text().got}});
}

}  // namespace fleet::transport

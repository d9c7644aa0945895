// Links, listeners and connections of a simulated world.
#include "base/strings.h"
#include "transport/sim/sim_world_impl.h"

namespace fleet::transport {
namespace {

class SimLink final : public Link {
 public:
  SimLink(SimWorld::Impl& world, std::shared_ptr<SimConnection> connection, bool connecting,
          std::string peer)
      : world_(world), connection_(std::move(connection)), peer_(std::move(peer)) {
    out_ = connecting ? connection_->forth : connection_->back;
    in_ = connecting ? connection_->back : connection_->forth;
  }
  ~SimLink() override { SimLink::close(); }

  IoResult read_some(std::span<const MutableBytes> parts) override {
    return world_.read(in_, parts);
  }
  IoResult write_some(std::span<const ConstBytes> parts) override {
    return world_.write(out_, connection_, parts);
  }
  void wait_readable(Loop::Handler handler) override {
    in_->readable.set(std::move(handler));
    if (in_->has_ready() || in_->ended || in_->broken) world_.wake_reader(in_);
  }
  void read_later(MutableBytes into, ReadHandler handler) override {
    into_ = into;
    on_read_ = std::move(handler);
    wait_readable([this] {
      const ReadHandler on_read = std::move(on_read_);
      on_read(read_some(std::span(&into_, 1)));
    });
  }
  void wait_writable(Loop::Handler handler) override {
    out_->writable.set(std::move(handler));
    if (out_->broken || out_->held < world_.faults.pipe_bytes) world_.wake_writer(out_);
  }
  void close() override {
    if (!connection_) return;
    in_->readable.set(nullptr);
    out_->writable.set(nullptr);
    world_.end_pipe(out_);
    world_.break_pipe(in_);
    connection_.reset();
  }
  std::unique_ptr<Link> rebind(Loop& loop) override {
    auto& target = dynamic_cast<SimLoop&>(loop);
    out_->writer = target.index();
    in_->reader = target.index();
    in_->readable.set(nullptr);
    out_->writable.set(nullptr);
    auto moved = std::make_unique<SimLink>(world_, connection_, out_ == connection_->forth, peer_);
    connection_.reset();
    return moved;
  }
  LinkKind kind() const override { return LinkKind::kMemory; }
  std::string peer_name() const override { return peer_; }
  std::optional<PeerProcess> peer_process() const override { return std::nullopt; }
  bool same_machine() const override { return world_.faults.one_machine; }

 private:
  SimWorld::Impl& world_;
  std::shared_ptr<SimConnection> connection_;
  std::shared_ptr<SimPipe> out_;
  std::shared_ptr<SimPipe> in_;
  MutableBytes into_;
  ReadHandler on_read_;
  std::string peer_;
};

class SimListener final : public Listener {
 public:
  SimListener(SimWorld::Impl& world, Endpoint bound, std::shared_ptr<bool> alive)
      : world_(world), bound_(std::move(bound)), alive_(std::move(alive)) {}
  ~SimListener() override {
    *alive_ = false;
    const auto found = world_.listeners.find(bound_.port);
    if (found != world_.listeners.end() && found->second.alive == alive_) {
      world_.listeners.erase(found);
    }
  }
  Endpoint bound() const override { return bound_; }

 private:
  SimWorld::Impl& world_;
  Endpoint bound_;
  std::shared_ptr<bool> alive_;
};

class SimConnector final : public Connector {
 public:
  explicit SimConnector(std::shared_ptr<bool> wanted) : wanted_(std::move(wanted)) {}
  ~SimConnector() override { *wanted_ = false; }

 private:
  std::shared_ptr<bool> wanted_;
};

uint32_t index_of(Loop& loop) {
  return dynamic_cast<SimLoop&>(loop).index();
}

}  // namespace

void SimPipe::add_ready(std::vector<std::byte>&& chunk) {
  if (!has_ready()) {
    ready = std::move(chunk);
    taken = 0;
    return;
  }
  ready.erase(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(std::exchange(taken, 0)));
  ready.insert(ready.end(), chunk.begin(), chunk.end());
}

size_t SimPipe::take_ready(MutableBytes into) {
  const size_t take = std::min(into.size(), ready.size() - taken);
  std::copy_n(ready.begin() + static_cast<std::ptrdiff_t>(taken), take, into.begin());
  taken += take;
  if (!has_ready()) {
    ready = {};
    taken = 0;
  }
  return take;
}

template <SimWaiter SimPipe::*which>
void SimWorld::Impl::wake(const std::shared_ptr<SimPipe>& pipe, uint32_t loop) {
  SimWaiter& waiter = (*pipe).*which;
  if (!waiter.handler || waiter.due) return;
  waiter.due = true;
  schedule(loop, now_, [pipe, number = waiter.number] {
    SimWaiter& due = (*pipe).*which;
    if (due.number != number || !due.handler) return;
    const Loop::Handler handler = std::exchange(due.handler, nullptr);
    handler();
  });
}
void SimWorld::Impl::wake_reader(const std::shared_ptr<SimPipe>& pipe) {
  wake<&SimPipe::readable>(pipe, pipe->reader);
}
void SimWorld::Impl::wake_writer(const std::shared_ptr<SimPipe>& pipe) {
  wake<&SimPipe::writable>(pipe, pipe->writer);
}

IoResult SimWorld::Impl::write(const std::shared_ptr<SimPipe>& pipe,
                               const std::weak_ptr<SimConnection>& connection,
                               std::span<const ConstBytes> parts) {
  if (pipe->broken || pipe->ended) return {IoState::kFailed, 0};
  if (pipe->held >= faults.pipe_bytes) return {IoState::kWouldBlock, 0};
  size_t room = faults.pipe_bytes - pipe->held;
  size_t offered = 0;
  for (const ConstBytes part : parts) offered += part.size();
  std::vector<std::byte> bytes;
  bytes.reserve(std::min(room, offered));
  for (const ConstBytes part : parts) {
    const size_t take = std::min(room, part.size());
    bytes.insert(bytes.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(take));
    room -= take;
  }
  const IoResult result{IoState::kOk, bytes.size()};
  trace_ = mix64(trace_ ^ bytes.size());
  if (pipe->doomed) return result;
  if (chance(faults.cut)) {
    pipe->doomed = true;
    bytes.resize(random(bytes.size() + 1));
    if (!bytes.empty()) deliver(pipe, std::move(bytes));
    schedule(kNoLoop, std::max(pipe->last_delivery, now_ + delay()), [this, connection] {
      if (const auto still = connection.lock()) break_connection(*still);
    });
    return result;
  }
  std::vector<std::vector<std::byte>> again;
  if (faults.duplicate > 0) {
    pipe->follower.follow(bytes, [&](ConstBytes frame) {
      if (chance(faults.duplicate)) again.emplace_back(frame.begin(), frame.end());
    });
  }
  // A repeated frame may follow only where a frame ends; when this write stops inside one, the
  // repetition is left out.
  const bool at_boundary = !again.empty() && pipe->follower.at_boundary();
  deliver(pipe, std::move(bytes));
  if (at_boundary) {
    for (auto& frame : again) deliver(pipe, std::move(frame));
  }
  return result;
}

void SimWorld::Impl::deliver(const std::shared_ptr<SimPipe>& pipe, std::vector<std::byte> bytes) {
  pipe->held += bytes.size();
  if (faults.max_chunk == 0) return send_off(pipe, std::move(bytes));
  for (auto from = bytes.cbegin(); from != bytes.cend();) {
    const auto rest = static_cast<size_t>(bytes.cend() - from);
    const size_t take = std::min<size_t>(rest, 1 + random(faults.max_chunk));
    const auto end = from + static_cast<std::ptrdiff_t>(take);
    send_off(pipe, std::vector<std::byte>(from, end));
    from = end;
  }
}

void SimWorld::Impl::send_off(const std::shared_ptr<SimPipe>& pipe,
                              std::vector<std::byte>&& chunk) {
  if (chunk.empty()) return;
  pipe->last_delivery = std::max(pipe->last_delivery, now_ + delay());
  schedule(kNoLoop, pipe->last_delivery,
           [this, pipe, chunk = std::move(chunk)]() mutable { arrive(pipe, std::move(chunk)); });
}

void SimWorld::Impl::arrive(const std::shared_ptr<SimPipe>& pipe, std::vector<std::byte>&& chunk) {
  if (parted(pipe->writer, pipe->reader)) {
    held.push_back(
        [this, pipe, chunk = std::move(chunk)]() mutable { arrive(pipe, std::move(chunk)); });
    return;
  }
  if (pipe->broken) return;
  pipe->add_ready(std::move(chunk));
  wake_reader(pipe);
}

IoResult SimWorld::Impl::read(const std::shared_ptr<SimPipe>& pipe,
                              std::span<const MutableBytes> parts) {
  if (!pipe->has_ready()) {
    if (pipe->ended) return {IoState::kClosed, 0};
    return {pipe->broken ? IoState::kFailed : IoState::kWouldBlock, 0};
  }
  size_t moved = 0;
  for (const MutableBytes part : parts) moved += pipe->take_ready(part);
  pipe->held -= moved;
  if (pipe->held < faults.pipe_bytes) wake_writer(pipe);
  return {IoState::kOk, moved};
}

void SimWorld::Impl::end_pipe(const std::shared_ptr<SimPipe>& pipe) {
  if (std::exchange(pipe->closed, true)) return;
  pipe->last_delivery = std::max(pipe->last_delivery, now_ + delay());
  schedule(kNoLoop, pipe->last_delivery, [this, pipe] { arrive_end(pipe); });
}

void SimWorld::Impl::arrive_end(const std::shared_ptr<SimPipe>& pipe) {
  if (parted(pipe->writer, pipe->reader)) {
    held.push_back([this, pipe] { arrive_end(pipe); });
    return;
  }
  pipe->ended = true;
  wake_reader(pipe);
}

void SimWorld::Impl::break_pipe(const std::shared_ptr<SimPipe>& pipe) {
  pipe->broken = true;
  wake_writer(pipe);
  wake_reader(pipe);
}

void SimWorld::Impl::break_connection(SimConnection& connection) {
  break_pipe(connection.forth);
  break_pipe(connection.back);
}

void SimWorld::Impl::close_links_of(uint32_t loop) {
  for (const auto& weak : connections) {
    const auto connection = weak.lock();
    if (!connection) continue;
    for (const auto& pipe : {connection->forth, connection->back}) {
      if (pipe->writer == loop) end_pipe(pipe);
      if (pipe->reader == loop) break_pipe(pipe);
    }
  }
}

void SimWorld::Impl::add_connection(const std::shared_ptr<SimConnection>& connection) {
  if (connections.size() == connections.capacity()) {
    std::erase_if(connections, [](const auto& weak) { return weak.expired(); });
    connections.reserve(2 * connections.size() + 1);
  }
  connections.push_back(connection);
}

void SimWorld::Impl::open_connection(uint32_t from, uint16_t port,
                                     const std::shared_ptr<bool>& wanted,
                                     const std::shared_ptr<ConnectHandler>& on_done) {
  const std::string where = str_cat("memory port ", port);
  const auto found = listeners.find(port);
  const auto answer = [this, from, wanted, on_done](Result<std::unique_ptr<Link>> link) {
    auto shared = std::make_shared<Result<std::unique_ptr<Link>>>(std::move(link));
    schedule(from, now_, [wanted, on_done, shared] {
      if (!*wanted) return;
      const auto handler = std::move(*on_done);
      handler(std::move(*shared));
    });
  };
  if (found == listeners.end() || !loops[found->second.loop].alive || chance(faults.refuse)) {
    return answer(connection_refused(where));
  }
  const SimAccepting& target = found->second;
  if (parted(from, target.loop)) {
    held.push_back(
        [this, from, port, wanted, on_done] { open_connection(from, port, wanted, on_done); });
    return;
  }
  auto connection = std::make_shared<SimConnection>();
  connection->forth->writer = connection->back->reader = from;
  connection->forth->reader = connection->back->writer = target.loop;
  add_connection(connection);
  auto accepted = std::make_shared<std::unique_ptr<Link>>(
      std::make_unique<SimLink>(*this, connection, false, loops[from].loop->name()));
  schedule(target.loop, now_, [accept = target.on_accept, alive = target.alive, accepted] {
    if (*alive) accept(std::move(*accepted));
  });
  answer(std::unique_ptr<Link>(std::make_unique<SimLink>(*this, connection, true, where)));
}

Result<std::unique_ptr<Listener>> SimWorld::listen(Loop& loop, const Address& address,
                                                   AcceptHandler on_accept) {
  Endpoint bound = address.endpoint;
  if (bound.port == 0) bound.port = impl_->next_port++;
  if (impl_->listeners.contains(bound.port)) {
    return Status(ErrorCode::kAddressInUse, {.what = "somebody else listens on the port already",
                                             .where = address.to_string(),
                                             .expected = {},
                                             .got = {},
                                             .fix = {}});
  }
  auto alive = std::make_shared<bool>(true);
  impl_->listeners[bound.port] = SimAccepting{index_of(loop), std::move(on_accept), alive};
  return std::unique_ptr<Listener>(std::make_unique<SimListener>(*impl_, bound, alive));
}

std::unique_ptr<Connector> SimWorld::connect(Loop& loop, const Address& address,
                                             ConnectHandler on_done) {
  const uint32_t from = index_of(loop);
  auto wanted = std::make_shared<bool>(true);
  auto handler = std::make_shared<ConnectHandler>(std::move(on_done));
  impl_->schedule(kNoLoop, now() + impl_->delay(),
                  [impl = impl_.get(), from, port = address.endpoint.port, wanted, handler] {
                    impl->open_connection(from, port, wanted, handler);
                  });
  return std::make_unique<SimConnector>(std::move(wanted));
}

std::vector<Address> SimWorld::routes(const Endpoint& endpoint) const {
  return {Address{LinkKind::kMemory, endpoint}};
}

}  // namespace fleet::transport

#include "transport/sim_loop.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr uint32_t kNoLoop = UINT32_MAX;
constexpr uint16_t kFirstFreePort = 20000;

struct Event {
  uint32_t loop = kNoLoop;
  Loop::Handler handler;
};

struct LoopState {
  std::unique_ptr<SimLoop> loop;
  bool alive = true;
  bool paused = false;
  std::map<Loop::TimerId, Loop::Handler> waiting;  // in the order of their ids
};

struct Accepting {
  uint32_t loop = kNoLoop;
  AcceptHandler on_accept;
  std::shared_ptr<bool> alive;
};

// Follows frame boundaries in a stream, to find whole frames that can come twice.
class FrameFollower {
 public:
  // Calls `on_frame(bytes)` for each whole frame after the handshake.
  template <class F>
  void follow(ConstBytes bytes, F on_frame) {
    while (!bytes.empty()) {
      const size_t wanted = frame_.size() < kHeaderBytes ? kHeaderBytes : total_;
      const size_t take = std::min(wanted - frame_.size(), bytes.size());
      frame_.insert(frame_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
      bytes = bytes.subspan(take);
      if (frame_.size() == kHeaderBytes && !measure()) return;
      if (frame_.size() < kHeaderBytes || frame_.size() < total_) continue;
      if (shaken_) on_frame(ConstBytes(frame_));
      frame_.clear();
    }
  }
  bool at_boundary() const { return frame_.empty(); }

 private:
  bool measure() {
    const auto header =
        decode_header(std::span<const std::byte, kHeaderBytes>(frame_.data(), kHeaderBytes));
    if (!header.ok()) {
      frame_.clear();
      return false;
    }
    total_ = kHeaderBytes + header.value().control_bytes + header.value().payload_bytes;
    shaken_ = header.value().verb > Verb::kRefuse;
    return true;
  }
  std::vector<std::byte> frame_;
  size_t total_ = 0;
  bool shaken_ = false;
};

// One direction of a connection.
struct Pipe {
  uint32_t writer = kNoLoop;
  uint32_t reader = kNoLoop;
  std::deque<std::byte> ready;
  size_t held = 0;  // bytes under way and ready
  TimePoint last_delivery{};
  bool ended = false;   // the writer closed, and the reader may know
  bool broken = false;  // cut
  bool doomed = false;  // about to be cut: what is written still goes nowhere
  Loop::Handler on_readable;
  Loop::Handler on_writable;
  FrameFollower follower;
};

struct Connection {
  std::shared_ptr<Pipe> forth = std::make_shared<Pipe>();
  std::shared_ptr<Pipe> back = std::make_shared<Pipe>();
};

}  // namespace

class SimWorld::Impl {
 public:
  Impl(uint64_t seed, SimFaults faults_in) : faults(faults_in), seed_(seed), state_(mix64(seed)) {}

  Loop::TimerId schedule(uint32_t loop, TimePoint when, Loop::Handler handler) {
    const uint64_t id = ++last_event_;
    const Key key{std::max(when, now_), id};
    events_.emplace(key, Event{loop, std::move(handler)});
    times_.emplace(id, key.first);
    return id;
  }
  void cancel(Loop::TimerId id) {
    const auto found = times_.find(id);
    if (found == times_.end()) {
      for (LoopState& state : loops) state.waiting.erase(id);
      return;
    }
    events_.erase(Key{found->second, id});
    times_.erase(found);
  }
  bool step(TimePoint deadline);
  void run_event(Loop::TimerId id, Event event);
  // Handlers may own what uses this world to its end.
  void clear() {
    while (!events_.empty() || !held.empty()) {
      const auto events = std::exchange(events_, {});
      const auto waiting = std::exchange(held, {});
    }
    for (LoopState& state : loops) const auto waiting = std::exchange(state.waiting, {});
    listeners.clear();
  }
  void resume(uint32_t loop);

  uint64_t random(uint64_t below) {
    state_ = mix64(state_);
    return below == 0 ? 0 : state_ % below;
  }
  bool chance(double probability) {
    if (probability <= 0) return false;
    return static_cast<double>(random(1U << 30)) < probability * (1U << 30);
  }
  Duration delay() {
    const auto spread = static_cast<uint64_t>((faults.delay_max - faults.delay_min).count());
    return faults.delay_min + Duration(static_cast<int64_t>(random(spread + 1)));
  }

  IoResult write(const std::shared_ptr<Pipe>& pipe, const std::weak_ptr<Connection>& connection,
                 std::span<const ConstBytes> parts);
  IoResult read(Pipe& pipe, std::span<const MutableBytes> parts);
  void deliver(const std::shared_ptr<Pipe>& pipe, std::vector<std::byte> bytes);
  // Now, or when the two can reach each other again, in the same order.
  void pass(const std::shared_ptr<Pipe>& pipe, const Loop::Handler& arrive) {
    if (!parted(pipe->writer, pipe->reader)) return arrive();
    held.push_back([this, pipe, arrive] { pass(pipe, arrive); });
  }
  void end_pipe(const std::shared_ptr<Pipe>& pipe);
  void break_pipe(Pipe& pipe);
  void break_connection(Connection& connection);
  void wake(Pipe& pipe, Loop::Handler Pipe::*which, uint32_t loop);
  void close_links_of(uint32_t loop);
  void open_connection(uint32_t from, uint16_t port, const std::shared_ptr<bool>& wanted,
                       const std::shared_ptr<ConnectHandler>& on_done);
  bool parted(uint32_t a, uint32_t b) const {
    return parted_.contains({std::min(a, b), std::max(a, b)});
  }

  SimWorld* world = nullptr;
  SimFaults faults;
  std::vector<LoopState> loops;
  std::map<uint16_t, Accepting> listeners;
  std::set<std::pair<uint32_t, uint32_t>> parted_;
  std::vector<Loop::Handler> held;  // what happens once a partition heals
  std::vector<std::weak_ptr<Connection>> connections;
  uint16_t next_port = kFirstFreePort;
  TimePoint now_{std::chrono::seconds(1)};
  uint64_t seed_;
  uint64_t events_run_ = 0;
  uint64_t trace_ = 0;
  bool running = false;

 private:
  using Key = std::pair<TimePoint, uint64_t>;
  uint64_t state_;
  uint64_t last_event_ = 0;
  std::map<Key, Event> events_;
  std::map<uint64_t, TimePoint> times_;
};

namespace {

class SimLink final : public Link {
 public:
  SimLink(SimWorld::Impl& world, std::shared_ptr<Connection> connection, bool connecting,
          std::string peer)
      : world_(world), connection_(std::move(connection)), peer_(std::move(peer)) {
    out_ = connecting ? connection_->forth : connection_->back;
    in_ = connecting ? connection_->back : connection_->forth;
  }
  ~SimLink() override { SimLink::close(); }

  IoResult read_some(std::span<const MutableBytes> parts) override {
    return world_.read(*in_, parts);
  }
  IoResult write_some(std::span<const ConstBytes> parts) override {
    return world_.write(out_, connection_, parts);
  }
  void wait_readable(Loop::Handler handler) override {
    in_->on_readable = std::move(handler);
    if (!in_->ready.empty() || in_->ended || in_->broken) {
      world_.wake(*in_, &Pipe::on_readable, in_->reader);
    }
  }
  void wait_writable(Loop::Handler handler) override {
    out_->on_writable = std::move(handler);
    if (out_->broken || out_->held < world_.faults.pipe_bytes) {
      world_.wake(*out_, &Pipe::on_writable, out_->writer);
    }
  }
  void close() override {
    if (!connection_) return;
    in_->on_readable = nullptr;
    out_->on_writable = nullptr;
    world_.end_pipe(out_);
    world_.break_pipe(*in_);
    connection_.reset();
  }
  std::unique_ptr<Link> rebind(Loop& loop) override {
    auto& target = dynamic_cast<SimLoop&>(loop);
    out_->writer = target.index();
    in_->reader = target.index();
    in_->on_readable = nullptr;
    out_->on_writable = nullptr;
    auto moved = std::make_unique<SimLink>(world_, connection_, out_ == connection_->forth, peer_);
    connection_.reset();
    return moved;
  }
  LinkKind kind() const override { return LinkKind::kMemory; }
  std::string peer_name() const override { return peer_; }
  std::optional<uint32_t> peer_uid() const override { return std::nullopt; }

 private:
  SimWorld::Impl& world_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Pipe> out_;
  std::shared_ptr<Pipe> in_;
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

Status no_listener(const std::string& where) {
  return Status(ErrorCode::kPeerLost, {.what = "cannot connect",
                                       .where = where,
                                       .expected = {},
                                       .got = "Connection refused",
                                       .fix = {}});
}

}  // namespace

// ---- events

void SimWorld::Impl::run_event(Loop::TimerId id, Event event) {
  if (event.loop != kNoLoop) {
    LoopState& state = loops[event.loop];
    if (!state.alive) return;
    if (state.paused) {
      state.waiting.emplace(id, std::move(event.handler));
      return;
    }
  }
  running = true;
  event.handler();
  running = false;
}

bool SimWorld::Impl::step(TimePoint deadline) {
  if (events_.empty() || events_.begin()->first.first > deadline) return false;
  const auto first = events_.begin();
  const Key key = first->first;
  Event event = std::move(first->second);
  events_.erase(first);
  times_.erase(key.second);
  now_ = key.first;
  ++events_run_;
  trace_ = mix64(trace_ ^ static_cast<uint64_t>(now_.time_since_epoch().count()) ^
                 (uint64_t{event.loop} << 40));
  run_event(key.second, std::move(event));
  return true;
}

void SimWorld::Impl::resume(uint32_t loop) {
  LoopState& state = loops[loop];
  state.paused = false;
  for (auto& [id, handler] : std::exchange(state.waiting, {})) {
    events_.emplace(Key{now_, id}, Event{loop, handler});
    times_.emplace(id, now_);
  }
}

// ---- streams

void SimWorld::Impl::wake(Pipe& pipe, Loop::Handler Pipe::*which, uint32_t loop) {
  if (!(pipe.*which)) return;
  schedule(loop, now_, std::exchange(pipe.*which, nullptr));
}

IoResult SimWorld::Impl::write(const std::shared_ptr<Pipe>& pipe,
                               const std::weak_ptr<Connection>& connection,
                               std::span<const ConstBytes> parts) {
  if (pipe->broken || pipe->ended) return {IoState::kFailed, 0};
  if (pipe->held >= faults.pipe_bytes) return {IoState::kWouldBlock, 0};
  size_t room = faults.pipe_bytes - pipe->held;
  std::vector<std::byte> bytes;
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

void SimWorld::Impl::deliver(const std::shared_ptr<Pipe>& pipe, std::vector<std::byte> bytes) {
  pipe->held += bytes.size();
  size_t begin = 0;
  while (begin < bytes.size()) {
    size_t take = bytes.size() - begin;
    if (faults.max_chunk != 0) take = std::min<size_t>(take, 1 + random(faults.max_chunk));
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<std::byte> chunk(from, from + static_cast<std::ptrdiff_t>(take));
    begin += take;
    pipe->last_delivery = std::max(pipe->last_delivery, now_ + delay());
    auto arrive = [this, pipe, chunk = std::move(chunk)] {
      if (pipe->broken) return;
      pipe->ready.insert(pipe->ready.end(), chunk.begin(), chunk.end());
      wake(*pipe, &Pipe::on_readable, pipe->reader);
    };
    schedule(kNoLoop, pipe->last_delivery,
             [this, pipe, arrive = std::move(arrive)] { pass(pipe, arrive); });
  }
}

IoResult SimWorld::Impl::read(Pipe& pipe, std::span<const MutableBytes> parts) {
  if (pipe.ready.empty()) {
    if (pipe.ended) return {IoState::kClosed, 0};
    return {pipe.broken ? IoState::kFailed : IoState::kWouldBlock, 0};
  }
  size_t moved = 0;
  for (const MutableBytes part : parts) {
    const size_t take = std::min(part.size(), pipe.ready.size());
    const auto end = pipe.ready.begin() + static_cast<std::ptrdiff_t>(take);
    std::copy(pipe.ready.begin(), end, part.begin());
    pipe.ready.erase(pipe.ready.begin(), end);
    moved += take;
  }
  pipe.held -= moved;
  if (pipe.held < faults.pipe_bytes) wake(pipe, &Pipe::on_writable, pipe.writer);
  return {IoState::kOk, moved};
}

void SimWorld::Impl::end_pipe(const std::shared_ptr<Pipe>& pipe) {
  pipe->last_delivery = std::max(pipe->last_delivery, now_ + delay());
  auto arrive = [this, pipe] {
    pipe->ended = true;
    wake(*pipe, &Pipe::on_readable, pipe->reader);
  };
  schedule(kNoLoop, pipe->last_delivery, [this, pipe, arrive] { pass(pipe, arrive); });
}

void SimWorld::Impl::break_pipe(Pipe& pipe) {
  pipe.broken = true;
  wake(pipe, &Pipe::on_writable, pipe.writer);
  wake(pipe, &Pipe::on_readable, pipe.reader);
}

void SimWorld::Impl::break_connection(Connection& connection) {
  break_pipe(*connection.forth);
  break_pipe(*connection.back);
}

void SimWorld::Impl::close_links_of(uint32_t loop) {
  for (const auto& weak : connections) {
    const auto connection = weak.lock();
    if (!connection) continue;
    for (const auto& pipe : {connection->forth, connection->back}) {
      if (pipe->writer == loop) end_pipe(pipe);
      if (pipe->reader == loop) break_pipe(*pipe);
    }
  }
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
    return answer(no_listener(where));
  }
  const Accepting& target = found->second;
  if (parted(from, target.loop)) {
    held.push_back(
        [this, from, port, wanted, on_done] { open_connection(from, port, wanted, on_done); });
    return;
  }
  auto connection = std::make_shared<Connection>();
  connection->forth->writer = connection->back->reader = from;
  connection->forth->reader = connection->back->writer = target.loop;
  std::erase_if(connections, [](const auto& weak) { return weak.expired(); });
  connections.push_back(connection);
  auto accepted = std::make_shared<std::unique_ptr<Link>>(
      std::make_unique<SimLink>(*this, connection, false, loops[from].loop->name()));
  schedule(target.loop, now_, [accept = target.on_accept, alive = target.alive, accepted] {
    if (*alive) accept(std::move(*accepted));
  });
  answer(std::unique_ptr<Link>(std::make_unique<SimLink>(*this, connection, true, where)));
}

// ---- SimWorld

SimWorld::SimWorld(uint64_t seed, SimFaults faults) : impl_(std::make_unique<Impl>(seed, faults)) {
  impl_->world = this;
}
SimWorld::~SimWorld() {
  impl_->clear();
}

SimLoop& SimWorld::add_loop(std::string name) {
  const auto index = static_cast<uint32_t>(impl_->loops.size());
  impl_->loops.emplace_back();
  impl_->loops.back().loop = std::make_unique<SimLoop>(*impl_, std::move(name), index);
  return *impl_->loops.back().loop;
}

TimePoint SimWorld::now() const {
  return impl_->now_;
}
uint64_t SimWorld::seed() const {
  return impl_->seed_;
}
void SimWorld::set_faults(const SimFaults& faults) {
  impl_->faults = faults;
}
uint64_t SimWorld::events_run() const {
  return impl_->events_run_;
}
uint64_t SimWorld::trace_hash() const {
  return impl_->trace_;
}
uint64_t SimWorld::random(uint64_t below) {
  return impl_->random(below);
}

bool SimWorld::run_until(const std::function<bool()>& done, TimePoint deadline) {
  if (impl_->running) {
    throw_error(ErrorCode::kPrecondition, {.what = "a simulated handler may not wait",
                                           .where = "SimWorld::run_until",
                                           .expected = "a call from outside of handlers",
                                           .got = {},
                                           .fix = {}});
  }
  while (!done()) {
    if (!impl_->step(deadline)) {
      if (deadline != TimePoint::max()) impl_->now_ = std::max(impl_->now_, deadline);
      return false;
    }
  }
  return true;
}

bool SimWorld::run_for(Duration duration) {
  return run_until([] { return false; }, now() + duration);
}

void SimWorld::kill(const SimLoop& loop) {
  if (!impl_->loops[loop.index()].alive) return;
  impl_->close_links_of(loop.index());
  impl_->loops[loop.index()].alive = false;
  std::erase_if(impl_->listeners,
                [&](const auto& entry) { return entry.second.loop == loop.index(); });
}

void SimWorld::pause(const SimLoop& loop) {
  impl_->loops[loop.index()].paused = true;
}
void SimWorld::resume(const SimLoop& loop) {
  impl_->resume(loop.index());
}

void SimWorld::cut(const SimLoop& a, const SimLoop& b) {
  for (const auto& weak : impl_->connections) {
    const auto connection = weak.lock();
    if (!connection) continue;
    const Pipe& pipe = *connection->forth;
    const bool between = (pipe.writer == a.index() && pipe.reader == b.index()) ||
                         (pipe.writer == b.index() && pipe.reader == a.index());
    if (between) impl_->break_connection(*connection);
  }
}

void SimWorld::partition(const SimLoop& a, const SimLoop& b) {
  impl_->parted_.insert({std::min(a.index(), b.index()), std::max(a.index(), b.index())});
}

void SimWorld::heal(const SimLoop& a, const SimLoop& b) {
  impl_->parted_.erase({std::min(a.index(), b.index()), std::max(a.index(), b.index())});
  // What still cannot pass is held again.
  for (const auto& handler : std::exchange(impl_->held, {})) handler();
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
  impl_->listeners[bound.port] = Accepting{index_of(loop), std::move(on_accept), alive};
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

// ---- SimLoop

SimLoop::SimLoop(SimWorld::Impl& world, std::string name, uint32_t index)
    : world_(world), name_(std::move(name)), index_(index) {}

TimePoint SimLoop::now() const {
  return world_.now_;
}
void SimLoop::post(Handler handler) {
  world_.schedule(index_, world_.now_, std::move(handler));
}
Loop::TimerId SimLoop::call_at(TimePoint when, Handler handler) {
  return world_.schedule(index_, when, std::move(handler));
}
void SimLoop::cancel(TimerId timer) {
  world_.cancel(timer);
}

bool SimLoop::run_until(const std::function<bool()>& done, TimePoint deadline) {
  return world_.world->run_until(done, deadline);
}

}  // namespace fleet::transport

#include "tests/testing/delay_proxy.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/archive.h"
#include "transport/session/frame.h"
#include "transport/session/handshake.h"

namespace fleet::testing {

using transport::IoResult;
using transport::IoState;
using transport::Link;

namespace {

// What a direction holds back before it stops reading.
constexpr size_t kMaxHeldBytes = 8 * 1024 * 1024;

// Reads a connecting side's first frames up to its hello, which no cipher hides by default.
class HelloReader {
 public:
  // Whether these bytes end the hello of a control lane.
  bool ends_control_hello(transport::ConstBytes bytes) {
    if (over_) return false;
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    while (bytes_.size() - at_ >= transport::kHeaderBytes) {
      const auto header =
          transport::decode_header(std::span<const std::byte, transport::kHeaderBytes>(
              bytes_.data() + at_, transport::kHeaderBytes));
      over_ = !header.ok();
      if (over_) return false;
      const size_t control = header.value().control_bytes;
      if (bytes_.size() - at_ < transport::kHeaderBytes + control) return false;
      const transport::ConstBytes said(bytes_.data() + at_ + transport::kHeaderBytes, control);
      at_ += transport::kHeaderBytes + control;
      if (header.value().verb != transport::Verb::kHello) continue;
      over_ = true;
      const auto hello = decode<transport::Hello>(said, "hello");
      return hello.ok() && hello.value().lane == transport::LaneKind::kControl;
    }
    return false;
  }

 private:
  std::vector<std::byte> bytes_;
  size_t at_ = 0;
  bool over_ = false;
};

}  // namespace

// A client's connection and the one to the server that it is passed on to. On the proxy's thread.
class DelayProxy::Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(DelayProxy& proxy, std::unique_ptr<Link> client)
      : proxy_(proxy), loop_(proxy.thread_.loop()), client_(std::move(client)) {}

  void start() {
    connector_ =
        proxy_.network_.connect(loop_, {transport::LinkKind::kTcp, proxy_.target_},
                                [this](Result<std::unique_ptr<Link>> server) {
                                  connector_.reset();
                                  if (!server.ok()) return close();
                                  server_ = std::move(server).value();
                                  forth_ = std::make_unique<Direction>(*this, *client_, *server_);
                                  back_ = std::make_unique<Direction>(*this, *server_, *client_);
                                  forth_->read();
                                  back_->read();
                                });
  }
  void resume() {
    if (forth_ && !closed_) forth_->pass_due();
    if (back_ && !closed_) back_->pass_due();
  }
  void close() {
    if (std::exchange(closed_, true)) return;
    if (forth_) forth_->stop();
    if (back_) back_->stop();
    client_->close();
    if (server_) server_->close();
    proxy_.drop(this);
  }

 private:
  // Bytes of one way: read, held back, written.
  class Direction {
   public:
    Direction(Connection& owner, Link& from, Link& to) : owner_(owner), from_(from), to_(to) {}

    void stop() {
      if (timer_) owner_.loop_.cancel(*timer_);
      timer_.reset();
    }

    void read() {
      if (reading_ || ended_ || held_bytes_ > kMaxHeldBytes) return;
      reading_ = true;
      from_.wait_readable([this] {
        reading_ = false;
        take();
      });
    }

    // Moves what has been held back for long enough. May end the connection.
    void pass_due() {
      const TimePoint now = owner_.loop_.now();
      while (!owner_.proxy_.held_ && !chunks_.empty() && chunks_.front().due <= now) {
        if (chunks_.front().cut) return owner_.cut();
        if (!write_front()) return;
      }
      if (chunks_.empty() && ended_) return owner_.close();
      if (!chunks_.empty() && !owner_.proxy_.held_) arm();
      read();
    }

   private:
    struct Chunk {
      TimePoint due;
      std::vector<std::byte> bytes;
      bool cut = false;
    };

    void take() {
      DelayProxy& proxy = owner_.proxy_;
      Chunk chunk;
      chunk.bytes.resize(std::max<size_t>(1, proxy.faults_.chunk_bytes));
      const transport::MutableBytes part(chunk.bytes);
      const IoResult got = from_.read_some(std::span(&part, 1));
      if (got.state == IoState::kWouldBlock) return read();
      if (got.state != IoState::kOk) {
        ended_ = true;
        return pass_due();
      }
      chunk.bytes.resize(got.bytes);
      const auto span =
          std::max<Duration>(proxy.faults_.max_delay - proxy.faults_.min_delay, Duration(0));
      const auto drawn =
          static_cast<int64_t>(proxy.random_() % (static_cast<uint64_t>(span.count()) + 1));
      last_due_ =
          std::max(last_due_, owner_.loop_.now() + proxy.faults_.min_delay + Duration(drawn));
      if (proxy.faults_.control_lanes_late > Duration(0) &&
          hello_.ends_control_hello(chunk.bytes)) {
        last_due_ += proxy.faults_.control_lanes_late;
      }
      chunk.due = last_due_;
      const bool cut = std::uniform_real_distribution<>(0, 1)(proxy.random_) < proxy.faults_.cut;
      if (cut) chunk.bytes.resize(proxy.random_() % (got.bytes + 1));
      held_bytes_ += chunk.bytes.size();
      chunks_.push_back(std::move(chunk));
      if (cut) chunks_.push_back({last_due_, {}, true});
      pass_due();
    }

    // False when nothing more goes now.
    bool write_front() {
      Chunk& chunk = chunks_.front();
      while (written_ < chunk.bytes.size()) {
        const auto rest = transport::ConstBytes(chunk.bytes).subspan(written_);
        const IoResult put = to_.write_some(std::span(&rest, 1));
        if (put.state == IoState::kWouldBlock) {
          to_.wait_writable([this] { pass_due(); });
          return false;
        }
        if (put.state != IoState::kOk) {
          owner_.close();
          return false;
        }
        written_ += put.bytes;
        owner_.proxy_.bytes_ += put.bytes;
      }
      held_bytes_ -= chunk.bytes.size();
      written_ = 0;
      chunks_.pop_front();
      return true;
    }

    void arm() {
      if (timer_) return;
      timer_ = owner_.loop_.call_at(chunks_.front().due, [this] {
        timer_.reset();
        pass_due();
      });
    }

    Connection& owner_;
    Link& from_;
    Link& to_;
    std::deque<Chunk> chunks_;
    size_t held_bytes_ = 0;
    size_t written_ = 0;
    TimePoint last_due_{};
    HelloReader hello_;
    bool reading_ = false;
    bool ended_ = false;
    std::optional<Loop::TimerId> timer_;
  };

  void cut() {
    ++proxy_.cuts_;
    close();
  }

  DelayProxy& proxy_;
  Loop& loop_;
  std::unique_ptr<transport::Connector> connector_;
  std::unique_ptr<Link> client_;
  std::unique_ptr<Link> server_;
  std::unique_ptr<Direction> forth_;
  std::unique_ptr<Direction> back_;
  bool closed_ = false;
};

DelayProxy::DelayProxy(Endpoint target, ProxyFaults faults)
    : target_(std::move(target)), faults_(faults), random_(faults.seed) {
  thread_.run_there([this] {
    auto listener =
        network_.listen(thread_.loop(), {transport::LinkKind::kTcp, {"127.0.0.1", 0}},
                        [this](std::unique_ptr<Link> client) { accept(std::move(client)); });
    listener.status().throw_if_error();
    listener_ = std::move(listener).value();
    bound_ = listener_->bound();
  });
}

DelayProxy::~DelayProxy() {
  thread_.run_there([this] {
    listener_.reset();
    for (const auto& [key, connection] : std::exchange(open_, {})) connection->close();
  });
  thread_.stop_and_join();
}

void DelayProxy::set_faults(const ProxyFaults& faults) {
  thread_.run_there([this, faults] {
    faults_ = faults;
    random_.seed(faults.seed);
  });
}

// Behind what the thread is at: what was passed on was read at once, perhaps before it was counted.
uint64_t DelayProxy::bytes() {
  uint64_t bytes = 0;
  thread_.run_there([&] { bytes = bytes_; });
  return bytes;
}

void DelayProxy::cut_all() {
  thread_.run_there([this] {
    for (const auto& [key, connection] : std::exchange(open_, {})) {
      ++cuts_;
      connection->close();
    }
  });
}

void DelayProxy::hold() {
  thread_.run_there([this] { held_ = true; });
}

void DelayProxy::release() {
  thread_.run_there([this] {
    held_ = false;
    for (const auto& [key, connection] : std::map(open_)) connection->resume();
  });
}

void DelayProxy::accept(std::unique_ptr<Link> client) {
  ++connections_;
  auto connection = std::make_shared<Connection>(*this, std::move(client));
  open_.emplace(connection.get(), connection);
  connection->start();
}

// Later: a handler of the connection may be running.
void DelayProxy::drop(Connection* connection) {
  const auto found = open_.find(connection);
  if (found == open_.end()) return;
  thread_.loop().post([keep = std::move(found->second)] {});
  open_.erase(found);
}

DelayProxies::DelayProxies(const std::vector<Endpoint>& targets, ProxyFaults faults) {
  for (const Endpoint& target : targets) {
    proxies_.push_back(std::make_unique<DelayProxy>(target, faults));
    ++faults.seed;
  }
}

std::vector<Endpoint> DelayProxies::endpoints() const {
  std::vector<Endpoint> endpoints;
  for (const auto& proxy : proxies_) endpoints.push_back(proxy->endpoint());
  return endpoints;
}

uint64_t DelayProxies::cuts() const {
  uint64_t cuts = 0;
  for (const auto& proxy : proxies_) cuts += proxy->cuts();
  return cuts;
}

Result<std::unique_ptr<transport::Listener>> ProxiedNetwork::listen(
    Loop& loop, const transport::Address& address, transport::AcceptHandler on_accept) {
  return network_.listen(loop, address, std::move(on_accept));
}

std::unique_ptr<transport::Connector> ProxiedNetwork::connect(Loop& loop,
                                                              const transport::Address& address,
                                                              transport::ConnectHandler on_done) {
  const auto found = proxies_.find(address.endpoint.port);
  if (found == proxies_.end()) return network_.connect(loop, address, std::move(on_done));
  return network_.connect(loop, {transport::LinkKind::kTcp, found->second->endpoint()},
                          std::move(on_done));
}

std::vector<transport::Address> ProxiedNetwork::routes(const Endpoint& endpoint) const {
  return network_.routes(endpoint);
}

}  // namespace fleet::testing

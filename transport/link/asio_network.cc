#include "transport/link/asio_network.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/strings.h"
#include "transport/link/asio_loop_impl.h"

namespace fleet::transport {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Generic = asio::generic::stream_protocol;
using asio::ip::tcp;
// Sockets that know their loop's type spare a virtual call and a reference count a handler.
using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<Generic, Executor>;

constexpr size_t kMaxParts = 64;
// Unix sockets do not grow theirs as TCP does: with the usual 208 KiB, less than a piece, writer
// and reader wake each other all the time.
constexpr int kUnixSendBuffer = 1 << 20;

asio::io_context& context_of(Loop& loop) {
  auto* asio_loop = dynamic_cast<AsioLoop*>(&loop);
  if (asio_loop == nullptr) {
    throw_error(ErrorCode::kInternal, {.what = "an Asio link needs an AsioLoop",
                                       .where = "transport/asio_network",
                                       .expected = {},
                                       .got = {},
                                       .fix = {}});
  }
  return asio_loop->impl().context();
}

Status system_status(ErrorCode code, std::string what, std::string where, const error_code& error,
                     std::string fix = {}) {
  return Status(code, {.what = std::move(what),
                       .where = std::move(where),
                       .expected = {},
                       .got = error.message(),
                       .fix = std::move(fix)});
}

std::string abstract_name(uint16_t port) {
  std::string name(1, '\0');
  return name + str_cat("fleet-", port);
}

std::optional<PeerProcess> process_behind(int unix_socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return std::nullopt;
  }
  return PeerProcess{credentials.uid, static_cast<uint32_t>(credentials.pid)};
}

IoResult io_result(ssize_t moved) {
  if (moved > 0) return {IoState::kOk, static_cast<size_t>(moved)};
  if (moved == 0) return {IoState::kClosed, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {IoState::kWouldBlock, 0};
  return {IoState::kFailed, 0};
}

IoResult io_result(const error_code& error, size_t bytes) {
  if (!error) return {IoState::kOk, bytes};
  return {error == asio::error::eof ? IoState::kClosed : IoState::kFailed, 0};
}

class AsioLink final : public Link {
 public:
  AsioLink(Socket socket, LinkKind kind, std::string peer)
      : socket_(std::move(socket)), kind_(kind), peer_(std::move(peer)) {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    if (kind_ == LinkKind::kTcp) socket_.set_option(tcp::no_delay(true), ignored);
    if (kind_ == LinkKind::kUnix)
      socket_.set_option(asio::socket_base::send_buffer_size(kUnixSendBuffer), ignored);
  }
  ~AsioLink() override { AsioLink::close(); }

  IoResult read_some(std::span<const MutableBytes> parts) override {
    std::array<iovec, kMaxParts> vectors;
    const size_t count = std::min(parts.size(), kMaxParts);
    for (size_t i = 0; i < count; ++i) vectors[i] = {parts[i].data(), parts[i].size()};
    return io_result(::readv(socket_.native_handle(), vectors.data(), static_cast<int>(count)));
  }

  IoResult write_some(std::span<const ConstBytes> parts) override {
    std::array<iovec, kMaxParts> vectors;
    const size_t count = std::min(parts.size(), kMaxParts);
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    return io_result(::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  void wait_readable(Loop::Handler handler) override {
    wait(Socket::wait_read, std::move(handler));
  }
  void wait_writable(Loop::Handler handler) override {
    wait(Socket::wait_write, std::move(handler));
  }

  void read_later(MutableBytes into, ReadHandler handler) override {
    socket_.async_receive(
        asio::buffer(into.data(), into.size()),
        [alive = alive_, handler = std::move(handler)](const error_code& error, size_t bytes) {
          if (*alive && error != asio::error::operation_aborted) handler(io_result(error, bytes));
        });
  }

  // The kernel doubles what it is told, for its bookkeeping.
  void set_send_buffer(size_t bytes) override {
    error_code ignored;
    if (kind_ != LinkKind::kTcp) return;
    socket_.set_option(asio::socket_base::send_buffer_size(static_cast<int>(bytes / 2)), ignored);
  }

  void close() override {
    *alive_ = false;
    error_code ignored;
    socket_.close(ignored);
  }

  std::unique_ptr<Link> rebind(Loop& loop) override {
    *alive_ = false;
    const auto protocol = socket_.local_endpoint().protocol();
    const auto handle = socket_.release();
    return std::make_unique<AsioLink>(Socket(context_of(loop), protocol, handle), kind_, peer_);
  }

  LinkKind kind() const override { return kind_; }
  std::string peer_name() const override { return peer_; }

  std::optional<PeerProcess> peer_process() const override {
    if (kind_ != LinkKind::kUnix) return std::nullopt;
    // Asio has no const native_handle().
    return process_behind(const_cast<Socket&>(socket_).native_handle());
  }

  bool same_machine() const override {
    if (kind_ == LinkKind::kUnix) return true;
    error_code error;
    const auto here = address_of(socket_.local_endpoint(error));
    const auto there = address_of(socket_.remote_endpoint(error));
    return !error && (here == there || there.is_loopback());
  }

 private:
  static asio::ip::address address_of(const Generic::endpoint& endpoint) {
    tcp::endpoint address;
    address.resize(endpoint.size());
    std::memcpy(address.data(), endpoint.data(), endpoint.size());
    return address.address();
  }

  void wait(Socket::wait_type what, Loop::Handler handler) {
    socket_.async_wait(what,
                       [alive = alive_, handler = std::move(handler)](const error_code& error) {
                         if (*alive && error != asio::error::operation_aborted) handler();
                       });
  }

  Socket socket_;
  LinkKind kind_;
  std::string peer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

template <class Protocol>
class AsioListener final : public Listener {
  using Accepted = asio::basic_stream_socket<Protocol, Executor>;

 public:
  AsioListener(asio::io_context& context, LinkKind kind, AcceptHandler on_accept)
      : acceptor_(context), retry_(context), kind_(kind), on_accept_(std::move(on_accept)) {}
  ~AsioListener() override { *alive_ = false; }

  error_code open(const typename Protocol::endpoint& endpoint) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    // So that a port with connections in TIME_WAIT can be had again; Linux still refuses it while
    // another socket listens.
    if (!error && kind_ == LinkKind::kTcp) {
      acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    }
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    return error;
  }

  void start(Endpoint bound) {
    bound_ = std::move(bound);
    accept();
  }
  uint16_t port() const {
    if constexpr (std::is_same_v<Protocol, tcp>) return acceptor_.local_endpoint().port();
    return 0;
  }
  Endpoint bound() const override { return bound_; }

 private:
  void accept() {
    acceptor_.async_accept([this, alive = alive_](const error_code& error, Accepted socket) {
      if (!*alive) return;
      if (!error) deliver(std::move(socket));
      if (!*alive) return;
      // Out of descriptors, most likely: sessions that end give some back.
      if (error) return accept_later();
      accept();
    });
  }

  void accept_later() {
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this, alive = alive_](const error_code& error) {
      if (*alive && !error) accept();
    });
  }

  void deliver(Accepted socket) {
    std::string peer = Address{kind_, bound_}.to_string();
    if constexpr (std::is_same_v<Protocol, tcp>) {
      error_code ignored;
      const auto remote = socket.remote_endpoint(ignored);
      peer = str_cat("tcp ", Endpoint{remote.address().to_string(), remote.port()}.to_string());
    }
    on_accept_(std::make_unique<AsioLink>(Socket(std::move(socket)), kind_, peer));
  }

  asio::basic_socket_acceptor<Protocol, Executor> acceptor_;
  asio::steady_timer retry_;
  LinkKind kind_;
  AcceptHandler on_accept_;
  Endpoint bound_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class AsioConnector final : public Connector {
 public:
  AsioConnector(asio::io_context& context, Address address, ConnectHandler on_done)
      : resolver_(context),
        socket_(context),
        address_(std::move(address)),
        on_done_(std::move(on_done)) {}
  ~AsioConnector() override { *alive_ = false; }

  void start() {
    if (address_.kind == LinkKind::kUnix) {
      const auto name = abstract_name(address_.endpoint.port);
      return connect({Generic::endpoint(asio::local::stream_protocol::endpoint(name))}, 0);
    }
    error_code error;
    const auto numeric = asio::ip::make_address(address_.endpoint.host, error);
    if (!error) {
      return connect({Generic::endpoint(tcp::endpoint(numeric, address_.endpoint.port))}, 0);
    }
    resolver_.async_resolve(
        address_.endpoint.host, str_cat(address_.endpoint.port),
        [this, alive = alive_](const error_code& failed, const tcp::resolver::results_type& found) {
          if (!*alive) return;
          if (failed) return finish(failed);
          std::vector<Generic::endpoint> targets;
          for (const auto& entry : found) targets.emplace_back(entry.endpoint());
          connect(std::move(targets), 0);
        });
  }

 private:
  void connect(std::vector<Generic::endpoint> targets, size_t index) {
    if (index >= targets.size()) return finish(asio::error::host_not_found);
    error_code ignored;
    socket_.close(ignored);
    const Generic::endpoint target = targets[index];
    socket_.async_connect(target, [this, alive = alive_, targets = std::move(targets),
                                   index](const error_code& error) {
      if (!*alive) return;
      if (error && index + 1 < targets.size()) return connect(targets, index + 1);
      finish(error);
    });
  }

  void finish(const error_code& error) {
    const auto done = std::move(on_done_);
    if (error == asio::error::connection_refused || (!error && connected_to_itself())) {
      done(connection_refused(address_.to_string()));
    } else if (error) {
      done(system_status(ErrorCode::kPeerLost, "cannot connect", address_.to_string(), error));
    } else {
      done(std::unique_ptr<Link>(
          std::make_unique<AsioLink>(std::move(socket_), address_.kind, address_.to_string())));
    }
  }

  // TCP may connect a socket to itself when nobody listens on a port of the ephemeral range.
  bool connected_to_itself() {
    if (address_.kind != LinkKind::kTcp) return false;
    error_code error;
    const auto local = socket_.local_endpoint(error);
    return !error && local == socket_.remote_endpoint(error) && !error;
  }

  tcp::resolver resolver_;
  Socket socket_;
  Address address_;
  ConnectHandler on_done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

bool is_address_of_this_machine(const std::string& host) {
  if (host == "localhost") return true;
  error_code error;
  const auto address = asio::ip::make_address(host, error);
  if (error) return false;
  if (address.is_loopback()) return true;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* item = list; item != nullptr && !found; item = item->ifa_next) {
    if (item->ifa_addr == nullptr) continue;
    if (item->ifa_addr->sa_family == AF_INET && address.is_v4()) {
      sockaddr_in in{};
      std::memcpy(&in, item->ifa_addr, sizeof in);
      found = address.to_v4().to_uint() == ntohl(in.sin_addr.s_addr);
    } else if (item->ifa_addr->sa_family == AF_INET6 && address.is_v6()) {
      sockaddr_in6 in{};
      std::memcpy(&in, item->ifa_addr, sizeof in);
      const auto bytes = address.to_v6().to_bytes();
      found = std::memcmp(bytes.data(), &in.sin6_addr, bytes.size()) == 0;
    }
  }
  ::freeifaddrs(list);
  return found;
}

// Who listens on an abstract name; asked without saying a word.
std::optional<PeerProcess> holder_of(asio::io_context& context, uint16_t port) {
  asio::basic_stream_socket<asio::local::stream_protocol, Executor> probe(context);
  error_code error;
  probe.open(asio::local::stream_protocol(), error);
  if (!error) probe.non_blocking(true, error);
  if (!error) probe.connect(asio::local::stream_protocol::endpoint(abstract_name(port)), error);
  return error ? std::nullopt : process_behind(probe.native_handle());
}

Status listen_status(const Address& address, const error_code& error) {
  if (error == asio::error::address_in_use) {
    return system_status(ErrorCode::kAddressInUse, "somebody else listens on the port already",
                         address.to_string(), error,
                         "end the process that holds it (ss -ltnp), or choose another port");
  }
  return system_status(ErrorCode::kInput, "cannot listen", address.to_string(), error);
}

Result<std::unique_ptr<Listener>> listen_unix(asio::io_context& context, const Address& address,
                                              AcceptHandler on_accept) {
  auto listener = std::make_unique<AsioListener<asio::local::stream_protocol>>(
      context, LinkKind::kUnix, std::move(on_accept));
  const auto error =
      listener->open(asio::local::stream_protocol::endpoint(abstract_name(address.endpoint.port)));
  if (error == asio::error::address_in_use) {
    const auto holder = holder_of(context, address.endpoint.port);
    return Status(ErrorCode::kAddressInUse,
                  {.what = "somebody else listens on the Unix address already",
                   .where = address.to_string(),
                   .expected = "a free address",
                   .got = holder ? holder->to_string() : "a process that cannot be asked",
                   .fix = "end the process that holds it (ss -lxp), or choose another port"});
  }
  if (error) return listen_status(address, error);
  listener->start(address.endpoint);
  return std::unique_ptr<Listener>(std::move(listener));
}

Result<tcp::endpoint> resolve(asio::io_context& context, const Address& address) {
  error_code error;
  const auto numeric = asio::ip::make_address(address.endpoint.host, error);
  if (!error) return tcp::endpoint(numeric, address.endpoint.port);
  const auto found = tcp::resolver(context).resolve(
      address.endpoint.host, str_cat(address.endpoint.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return system_status(ErrorCode::kInput, "a host name cannot be resolved",
                         address.endpoint.to_string(), error);
  }
  return found.begin()->endpoint();
}

Result<std::unique_ptr<Listener>> listen_tcp(asio::io_context& context, const Address& address,
                                             const AcceptHandler& on_accept) {
  auto where = resolve(context, address);
  if (!where.ok()) return where.status();
  tcp::endpoint endpoint = where.value();
  auto listener = std::make_unique<AsioListener<tcp>>(context, LinkKind::kTcp, on_accept);
  auto error = listener->open(endpoint);
  if (error == error_code(EADDRNOTAVAIL, boost::system::system_category())) {
    endpoint = tcp::endpoint(endpoint.protocol(), endpoint.port());
    listener = std::make_unique<AsioListener<tcp>>(context, LinkKind::kTcp, on_accept);
    error = listener->open(endpoint);
  }
  if (error) return listen_status(address, error);
  listener->start(Endpoint{address.endpoint.host, listener->port()});
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace

Result<std::unique_ptr<Listener>> AsioNetwork::listen(Loop& loop, const Address& address,
                                                      AcceptHandler on_accept) {
  auto& context = context_of(loop);
  if (address.kind == LinkKind::kUnix) return listen_unix(context, address, std::move(on_accept));
  return listen_tcp(context, address, on_accept);
}

std::unique_ptr<Connector> AsioNetwork::connect(Loop& loop, const Address& address,
                                                ConnectHandler on_done) {
  auto connector = std::make_unique<AsioConnector>(context_of(loop), address, std::move(on_done));
  connector->start();
  return connector;
}

std::vector<Address> AsioNetwork::routes(const Endpoint& endpoint) const {
  std::vector<Address> routes;
  const bool local = is_address_of_this_machine(endpoint.host);
  if (choice_ != TransportChoice::kTcp && (local || choice_ == TransportChoice::kUnix)) {
    routes.push_back({LinkKind::kUnix, endpoint});
  }
  if (choice_ != TransportChoice::kUnix) routes.push_back({LinkKind::kTcp, endpoint});
  return routes;
}

}  // namespace fleet::transport

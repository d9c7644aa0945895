// The seam between protocol state machines and whatever moves their bytes: a Link is one
// connected byte stream, a Network makes links. TCP and Unix sockets:
// transport/link/asio_network.h; links in memory under virtual time: transport/sim/sim_loop.h.
//
// Everything here belongs to the thread that drives the loop it was made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/net/endpoint.h"
#include "base/status.h"
#include "transport/link/bytes.h"

namespace fleet::transport {

// A loop that the calling thread can drive itself while it waits, so that no hand-over between
// threads lies on its path.
class DrivenLoop : public Loop {
 public:
  // Runs handlers until `done()` is true, which is asked before the first handler and after each.
  // False when `deadline` came first, or when the loop was stopped. One thread at a time.
  virtual bool run_until(const std::function<bool()>& done, TimePoint deadline) = 0;
  // Runs what is ready and does not wait. One thread at a time, and not from inside a handler.
  virtual void poll() = 0;
};

enum class LinkKind : uint8_t { kTcp, kUnix, kMemory };
std::string_view link_kind_name(LinkKind kind);

// A Unix address is abstract and named by the port alone, so it reaches only servers in the same
// network namespace.
struct Address {
  LinkKind kind = LinkKind::kTcp;
  Endpoint endpoint;
  std::string to_string() const;  // "tcp 127.0.0.1:6174", "unix fleet-6174"
};

enum class IoState : uint8_t {
  kOk,          // at least one byte moved
  kWouldBlock,  // none now; wait for readiness
  kClosed,      // the other side has closed
  kFailed,      // the connection is broken
};

struct IoResult {
  IoState state = IoState::kOk;
  size_t bytes = 0;
};

using ReadHandler = std::function<void(IoResult)>;

// The process at the other end of a Unix socket, as the kernel says it: who connected, or who
// began to listen (which need not be who answers).
struct PeerProcess {
  uint32_t uid = 0;
  uint32_t pid = 0;
  std::string to_string() const;  // "user 1001, process 4242"
};

// One connected byte stream. Calls never block. Destroying it closes it, and no handler runs
// after that.
class Link {
 public:
  virtual ~Link() = default;

  // Scatter read and gather write of as many bytes as go now; at most 64 parts.
  virtual IoResult read_some(std::span<const MutableBytes> parts) = 0;
  virtual IoResult write_some(std::span<const ConstBytes> parts) = 0;

  // Runs the handler once, when a read (or write) would move bytes or fail. One waiter each.
  virtual void wait_readable(Loop::Handler handler) = 0;
  virtual void wait_writable(Loop::Handler handler) = 0;
  // One read into this memory as soon as it would move bytes or fail, and then the handler with
  // its outcome (kWouldBlock when there was nothing after all), never inside this call. Cheaper
  // than waiting and reading. The memory must stay until then, or until the link is closed. In
  // place of wait_readable, not beside it.
  virtual void read_later(MutableBytes into, ReadHandler handler);

  // At most about so many bytes are written and not yet acknowledged; for TCP, others ignore it.
  virtual void set_send_buffer(size_t) {}

  // What was written still arrives, then the other side sees the end. Waiting handlers are
  // dropped.
  virtual void close() = 0;

  // The same stream on another loop; this object is dead afterwards. No handler may be waiting.
  // Called on the old loop's thread, the result is used on the new one's.
  virtual std::unique_ptr<Link> rebind(Loop& loop) = 0;

  virtual LinkKind kind() const = 0;
  virtual std::string peer_name() const = 0;  // for messages: "unix fleet-6174", "tcp 10.0.0.2:5"
  // Where the kernel tells (Unix sockets).
  virtual std::optional<PeerProcess> peer_process() const = 0;
  // Both ends are on this machine (in one network namespace), so that nothing is lost between
  // them. False too when it cannot be told. While the link is open.
  virtual bool same_machine() const = 0;
};

// kAuthentication for a Unix link whose other end does not run as this process's user: nothing is
// said on it. The text names both; `what` it did and the `fix` are the caller's.
Status check_same_user(const Link& link, std::string_view what, std::string fix);

// Accepts until destroyed.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual Endpoint bound() const = 0;  // with the port that the kernel chose for port 0
};

// An attempt to connect; destroying it gives the attempt up, and its handler does not run.
class Connector {
 public:
  virtual ~Connector() = default;
};

using AcceptHandler = std::function<void(std::unique_ptr<Link>)>;
using ConnectHandler = std::function<void(Result<std::unique_ptr<Link>>)>;

// How connecting ends where the machine is there, but nobody listens.
Status connection_refused(std::string where);
bool is_connection_refused(const Status& status);

class Network {
 public:
  virtual ~Network() = default;

  // Exclusive: kAddressInUse when somebody listens there. A TCP host that is not an address of
  // this machine (behind address translation) listens on all addresses.
  virtual Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& address,
                                                   AcceptHandler on_accept) = 0;

  // The handler runs once, never inside this call. kPeerLost when nobody listens there.
  virtual std::unique_ptr<Connector> connect(Loop& loop, const Address& address,
                                             ConnectHandler on_done) = 0;

  // The ways to reach an endpoint, the best first. A Unix address is among them only when the
  // host is this machine.
  virtual std::vector<Address> routes(const Endpoint& endpoint) const = 0;
};

// FLEET_TRANSPORT: which kinds of link may be used.
enum class TransportChoice : uint8_t { kAuto, kTcp, kUnix };
Result<TransportChoice> parse_transport_choice(std::string_view text);  // "auto", "tcp", "unix"

}  // namespace fleet::transport

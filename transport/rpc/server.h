// Listens, authenticates, and hands sessions to handlers: control lanes on one loop, data lanes
// on the same or on another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/rpc/pending_sessions.h"
#include "transport/session/session.h"

namespace fleet::transport {

class ServerHandler : public SessionHandler {
 public:
  // Asked on the control loop before a connection whose hello fits is welcomed; a refusal is sent
  // to the peer as it is.
  virtual Status admit(const Hello& peer);
};

struct ServerOptions {
  Endpoint endpoint;  // port 0: the kernel chooses
  Hello hello;        // as every process of the job says it, with this server as `member`
  Secret secret;
  SessionLimits limits;
  Duration handshake_timeout = std::chrono::seconds(10);
  // Connections that have not yet said a valid hello; beyond, one is closed for each that comes
  // (PendingSessions says which). 0: 64 and 8 for each process, so that all may connect at once.
  size_t max_handshakes = 0;
  std::function<void(MutableBytes)> random;  // for nonces; the operating system's when empty
};

// A loop and who handles the sessions on it. Both outlive the server.
struct ServerLane {
  Loop* loop = nullptr;
  ServerHandler* handler = nullptr;
};

// Members may be called on the control loop's thread. Control and data lanes may share a loop and
// a handler; only control's handler is asked to admit. Of several data lanes, a peer's lane i is
// served by the one at i modulo their number.
class Server {
 public:
  Server(Network& network, ServerLane control, const std::vector<ServerLane>& data,
         ServerOptions options, Logger logger = {});
  Server(Network& network, ServerLane control, ServerLane data, ServerOptions options,
         Logger logger = {})
      : Server(network, control, std::vector<ServerLane>{data}, std::move(options),
               std::move(logger)) {}
  // Closes everything. No handler runs afterwards. Called where no loop of it is being driven by
  // another thread, or on the control loop when that is the data loop too.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens on every kind of link that the network has for the endpoint. kAddressInUse when
  // somebody has the port.
  Status listen();
  // After listen(): with the real port.
  const Endpoint& bound() const { return bound_; }
  // No new connections from now on.
  void stop_listening();
  // Sends what is queued, says goodbye on every session and closes it; each on its loop.
  void finish();

  // Connections refused so far, and why the last one was.
  uint64_t refused() const { return refused_; }
  const Status& last_refusal() const { return last_refusal_; }

 private:
  class Lane;
  class Gate;
  friend class Gate;

  const std::shared_ptr<Lane>& lane_of(const Hello& peer) const;
  void on_accept(std::unique_ptr<Link> link);
  void note_refusal(const std::string& peer, const Status& why, bool tampered = false);

  Network& network_;
  ServerOptions options_;
  Logger logger_;
  Endpoint bound_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::shared_ptr<Lane> control_;
  std::vector<std::shared_ptr<Lane>> data_;
  Loop& loop_;
  ServerHandler& admission_;
  std::unique_ptr<Gate> gate_;
  uint64_t refused_ = 0;
  Status last_refusal_;
  std::map<ErrorCode, RateLimit> refusal_lines_;
};

}  // namespace fleet::transport

// Real sockets with the faults of a bad network: a process between clients and a server that holds
// back what passes, so that frames of different connections overtake each other, and that cuts
// connections. Delays are drawn from a seed; what the operating system makes of them is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"

namespace fleet::testing {

struct ProxyFaults {
  uint64_t seed = 1;
  // Every chunk that is read waits for a time drawn between these, in order with its own
  // connection and direction, in no order with any other.
  Duration min_delay = Duration(0);
  Duration max_delay = Duration(0);
  size_t chunk_bytes = 16 * 1024;
  // Of a chunk: both directions end at once, with whatever is held back, and perhaps a part of
  // this chunk goes through first.
  double cut = 0;
  // What a control lane says of itself waits so much longer: it opens later than data lanes.
  Duration control_lanes_late = Duration(0);
};

// A network that lags up to 2 ms and breaks now and then.
inline ProxyFaults bad_network(uint64_t seed) {
  return {.seed = 1000 * seed,
          .max_delay = std::chrono::milliseconds(2),
          .chunk_bytes = 4096,
          .cut = 0.002};
}
// How many seeds of it a test tries: FLEET_NETWORK_SEEDS, else as many as usual.
inline uint64_t bad_network_seeds(uint64_t usual) {
  const char* asked = std::getenv("FLEET_NETWORK_SEEDS");
  return asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
}

// Listens on a TCP port of its own on 127.0.0.1 and passes every connection on to `target`, on a
// thread of its own. Members may be called from any thread.
class DelayProxy {
 public:
  DelayProxy(Endpoint target, ProxyFaults faults);
  ~DelayProxy();
  DelayProxy(const DelayProxy&) = delete;
  DelayProxy& operator=(const DelayProxy&) = delete;

  const Endpoint& endpoint() const { return bound_; }
  void set_faults(const ProxyFaults& faults);
  // Ends every connection now, as a cable that is pulled out would, but noticed at once.
  void cut_all();
  // From now on nothing passes, and nobody is told; until release().
  void hold();
  void release();

  uint64_t connections() const { return connections_; }
  uint64_t cuts() const { return cuts_; }
  // That were passed on, with every byte that somebody has.
  uint64_t bytes();

 private:
  class Connection;
  friend class Connection;

  void accept(std::unique_ptr<transport::Link> client);
  void drop(Connection* connection);

  Endpoint target_;
  transport::AsioNetwork network_{transport::TransportChoice::kTcp};
  Endpoint bound_;
  std::atomic<uint64_t> connections_{0};
  std::atomic<uint64_t> cuts_{0};
  transport::LoopThread thread_{"delay proxy"};
  // On the thread:
  ProxyFaults faults_;
  std::mt19937_64 random_;
  uint64_t bytes_ = 0;
  bool held_ = false;
  std::map<Connection*, std::shared_ptr<Connection>> open_;
  std::unique_ptr<transport::Listener> listener_;
};

// A proxy in front of each endpoint, with the seed of `faults` and those that follow it.
class DelayProxies {
 public:
  DelayProxies(const std::vector<Endpoint>& targets, ProxyFaults faults);

  std::vector<Endpoint> endpoints() const;
  uint64_t cuts() const;

 private:
  std::vector<std::unique_ptr<DelayProxy>> proxies_;
};

// A network on which every port of `proxies` is reached through its proxy, so that the processes'
// configuration need not know of them. Listening is not changed.
class ProxiedNetwork final : public transport::Network {
 public:
  // All of them outlive this.
  explicit ProxiedNetwork(std::map<uint16_t, const DelayProxy*> proxies)
      : proxies_(std::move(proxies)) {}

  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, const transport::Address& address,
                                                      transport::AcceptHandler on_accept) override;
  std::unique_ptr<transport::Connector> connect(Loop& loop, const transport::Address& address,
                                                transport::ConnectHandler on_done) override;
  std::vector<transport::Address> routes(const Endpoint& endpoint) const override;

 private:
  transport::AsioNetwork network_{transport::TransportChoice::kTcp};
  std::map<uint16_t, const DelayProxy*> proxies_;
};

}  // namespace fleet::testing

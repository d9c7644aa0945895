// A whole cluster in one thread under virtual time: loops, timers and links in memory, driven from
// one seed. The same seed gives the same run, event for event. For tests and experiments; the
// protocol classes are those that real processes run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/link/link.h"

namespace fleet::transport {

// What the network may do to the bytes, each decided by the seed.
struct SimFaults {
  Duration delay_min = std::chrono::microseconds(5);
  Duration delay_max = std::chrono::microseconds(50);
  // How many bytes one direction of a link holds before a write would block.
  size_t pipe_bytes = 256 * 1024;
  // A write is delivered in chunks of at most this many bytes; 0: whole.
  size_t max_chunk = 0;
  // Chance for each write that the link is cut: what is under way is lost, both sides see it.
  double cut = 0.0;
  // Chance for each whole frame after the handshake that it is delivered twice.
  double duplicate = 0.0;
  // Chance for each connection attempt that it is refused.
  double refuse = 0.0;
  // All loops are on one machine; else each is a machine of its own.
  bool one_machine = true;
};

class SimLoop;

class SimWorld final : public Clock, public Network {
 public:
  explicit SimWorld(uint64_t seed, SimFaults faults = {});
  ~SimWorld() override;
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // A process (or a thread of one): its handlers run one at a time. Lives as long as the world.
  SimLoop& add_loop(std::string name);

  TimePoint now() const override;
  uint64_t seed() const;
  void set_faults(const SimFaults& faults);

  // Runs events in the order of their time until `done()`. False when `deadline` (of virtual
  // time) came first, or when nothing is left that could ever happen.
  bool run_until(const std::function<bool()>& done, TimePoint deadline);
  bool run_for(Duration duration);
  uint64_t events_run() const;
  // Whose handler ran last; null when nobody's did, or the network's own.
  const SimLoop* last_loop() const;
  // A number that two runs share when they ran the same events in the same order at the same
  // times and moved as many bytes.
  uint64_t trace_hash() const;
  // A draw from the world's stream, for tests that choose moments.
  uint64_t random(uint64_t below);

  // Faults by name. `kill`: the loop never runs again and its links close; `pause`: its handlers
  // wait (SIGSTOP) until `resume`; `cut`: all links between the two break; `partition`: bytes
  // between the two are under way, and new connections hang, until `heal`.
  void kill(const SimLoop& loop);
  void pause(const SimLoop& loop);
  void resume(const SimLoop& loop);
  void cut(const SimLoop& a, const SimLoop& b);
  void partition(const SimLoop& a, const SimLoop& b);
  void heal(const SimLoop& a, const SimLoop& b);

  // Network. Hosts are not looked at: a port is an address. Port 0 takes a free one.
  Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& address,
                                           AcceptHandler on_accept) override;
  std::unique_ptr<Connector> connect(Loop& loop, const Address& address,
                                     ConnectHandler on_done) override;
  std::vector<Address> routes(const Endpoint& endpoint) const override;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class SimLoop final : public DrivenLoop {
 public:
  SimLoop(SimWorld::Impl& world, std::string name, uint32_t index);

  TimePoint now() const override;
  void post(Handler handler) override;
  TimerId call_at(TimePoint when, Handler handler) override;
  void cancel(TimerId timer) override;
  // Drives the whole world; only from outside of handlers.
  bool run_until(const std::function<bool()>& done, TimePoint deadline) override;
  // What the whole world does at this moment of virtual time.
  void poll() override;

  const std::string& name() const { return name_; }
  uint32_t index() const { return index_; }

 private:
  SimWorld::Impl& world_;
  std::string name_;
  uint32_t index_;
};

}  // namespace fleet::transport

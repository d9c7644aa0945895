// The inside of a simulated world: events, pipes and connections. Private to its sources.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "transport/session/frame.h"
#include "transport/sim/sim_events_impl.h"

namespace fleet::transport {

constexpr uint16_t kFirstFreePort = 20000;

struct SimLoopState {
  std::unique_ptr<SimLoop> loop;
  bool alive = true;
  bool paused = false;
  std::vector<Loop::TimerId> waiting;  // events whose time came while it was paused
};

struct SimAccepting {
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

// One who waits at a pipe; a handler that was replaced or dropped does not run, even when its turn
// was due.
struct SimWaiter {
  Loop::Handler handler;
  uint32_t number = 0;  // of the handler
  bool due = false;

  void set(Loop::Handler next) {
    handler = std::move(next);
    ++number;
    due = false;
  }
};

// One direction of a connection. What every chunk of bytes asks for comes first.
struct SimPipe {
  uint32_t writer = kNoLoop;
  uint32_t reader = kNoLoop;
  bool closed = false;  // by the writer
  bool ended = false;   // the reader may know
  bool broken = false;  // cut
  bool doomed = false;  // about to be cut: what is written still goes nowhere
  size_t held = 0;      // bytes under way and ready
  TimePoint last_delivery{};
  SimWaiter readable;
  std::vector<std::byte> ready;
  size_t taken = 0;  // of the ready ones
  SimWaiter writable;
  FrameFollower follower;

  bool has_ready() const { return taken < ready.size(); }
  void add_ready(std::vector<std::byte>&& chunk);
  size_t take_ready(MutableBytes into);
};

struct SimConnection {
  std::shared_ptr<SimPipe> forth = std::make_shared<SimPipe>();
  std::shared_ptr<SimPipe> back = std::make_shared<SimPipe>();
};

class SimWorld::Impl {
 public:
  Impl(uint64_t seed, SimFaults faults_in) : faults(faults_in), seed_(seed), state_(mix64(seed)) {}

  Loop::TimerId schedule(uint32_t loop, TimePoint when, Loop::Handler handler) {
    return events_.add(std::max(when, now_), {loop, std::move(handler)});
  }
  void cancel(Loop::TimerId id) { events_.cancel(id); }
  bool step(TimePoint deadline);
  // Handlers may own what uses this world to its end.
  void clear() {
    while (events_.clear() || !held.empty()) const auto waiting = std::exchange(held, {});
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

  IoResult write(const std::shared_ptr<SimPipe>& pipe,
                 const std::weak_ptr<SimConnection>& connection, std::span<const ConstBytes> parts);
  IoResult read(const std::shared_ptr<SimPipe>& pipe, std::span<const MutableBytes> parts);
  void deliver(const std::shared_ptr<SimPipe>& pipe, std::vector<std::byte> bytes);
  void send_off(const std::shared_ptr<SimPipe>& pipe, std::vector<std::byte>&& chunk);
  // What was under way is there: now, or when the two can reach each other again, in the same
  // order.
  void arrive(const std::shared_ptr<SimPipe>& pipe, std::vector<std::byte>&& chunk);
  void arrive_end(const std::shared_ptr<SimPipe>& pipe);
  void end_pipe(const std::shared_ptr<SimPipe>& pipe);
  void break_pipe(const std::shared_ptr<SimPipe>& pipe);
  void break_connection(SimConnection& connection);
  void wake_reader(const std::shared_ptr<SimPipe>& pipe);
  void wake_writer(const std::shared_ptr<SimPipe>& pipe);
  template <SimWaiter SimPipe::*which>
  void wake(const std::shared_ptr<SimPipe>& pipe, uint32_t loop);
  void close_links_of(uint32_t loop);
  // Looks over those that are gone each time that the list would grow.
  void add_connection(const std::shared_ptr<SimConnection>& connection);
  void open_connection(uint32_t from, uint16_t port, const std::shared_ptr<bool>& wanted,
                       const std::shared_ptr<ConnectHandler>& on_done);
  bool parted(uint32_t a, uint32_t b) const {
    return !parted_.empty() && parted_.contains({std::min(a, b), std::max(a, b)});
  }

  SimWorld* world = nullptr;
  SimFaults faults;
  std::vector<SimLoopState> loops;
  std::map<uint16_t, SimAccepting> listeners;
  std::set<std::pair<uint32_t, uint32_t>> parted_;
  std::vector<Loop::Handler> held;  // what happens once a partition heals
  std::vector<std::weak_ptr<SimConnection>> connections;
  uint16_t next_port = kFirstFreePort;
  TimePoint now_{std::chrono::seconds(1)};
  uint64_t seed_;
  uint64_t events_run_ = 0;
  uint64_t trace_ = 0;
  uint32_t last_loop_ = kNoLoop;
  bool running = false;

 private:
  void run_event(Loop::TimerId id);

  uint64_t state_;
  SimEvents events_;
};

}  // namespace fleet::transport

// Drives the operations of a communicator that are under way. Internal to transport_collective.
#pragma once

#include <atomic>
#include <concepts>
#include <mutex>
#include <optional>

#include "transport/collective/operations_impl.h"

namespace fleet::transport::collective_detail {

struct Pending {
  std::unique_ptr<Machine> machine;
  OperationId id;
  CollectiveLabel label;
  bool done = false;
};

// Which ranks wait, too: each tells all others so when a wait comes near its deadline.
class RollCall {
 public:
  // For the wait in operation `now`. This rank answers for operations a little earlier as well,
  // since others may still wait for those.
  void make(PointToPoint& peers, uint64_t now);
  // Those that have not said that they wait in it; none where there was no roll call.
  std::vector<int> missing();

 private:
  uint64_t next_ = 0;  // no operation before this is answered for again
  std::vector<std::unique_ptr<MessageSet>> sent_;
  std::unique_ptr<MessageSet> received_;
};

// An operation, without a lock between the thread that writes and those that read. Any thread.
class SharedOperationId {
 public:
  void set(const OperationId& id) {
    what_.store(static_cast<uint64_t>(id.kind) << 56 | static_cast<uint64_t>(id.type) << 48 |
                    (id.count & kCounts),
                std::memory_order_relaxed);
    sequence_.store(id.sequence, std::memory_order_relaxed);
  }
  void clear() { sequence_.store(kNone, std::memory_order_relaxed); }
  std::optional<OperationId> get() const {
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    if (sequence == kNone) return std::nullopt;
    const uint64_t what = what_.load(std::memory_order_relaxed);
    return OperationId{sequence, static_cast<CollectiveKind>(what >> 56),
                       static_cast<ElementType>(what >> 48 & 0xff), what & kCounts};
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr uint64_t kCounts = (uint64_t{1} << 48) - 1;
  std::atomic<uint64_t> sequence_{kNone};
  std::atomic<uint64_t> what_{0};
};

// Shared by the communicator and its tokens. Used by one thread at a time, except for fail(),
// broken() and awaited().
class Engine {
 public:
  explicit Engine(std::unique_ptr<PointToPoint> peers)
      : peers_(std::move(peers)), group_{*peers_} {}
  ~Engine();

  int rank() const { return group_.rank; }
  int size() const { return group_.size; }
  PeerMemory* memory() const { return peers_->peer_memory(); }

  // The next operation; `make(group, id)` gives its machine.
  template <std::invocable<Group&, const OperationId&> Make>
  std::shared_ptr<Pending> start(CollectiveKind kind, ElementType type, uint64_t count,
                                 CollectiveLabel label, const Make& make) {
    const OperationId id{operations_++, kind, type, count};
    auto pending = std::make_shared<Pending>(Pending{nullptr, id, label});
    guarded([&] {
      pending->machine = make(group_, id);
      active_.push_back(pending);
      advance_all();
    });
    return pending;
  }

  bool test(const Pending& pending);
  Status wait(const Pending& pending, TimePoint deadline);
  // What wait() waits for just now. Any thread; while a wait ends and another begins, the text may
  // be of both.
  std::string awaited() const;
  Status broken();
  void fail(const Status& reason);

 private:
  // Runs `action` with the back end's lock; an error breaks the communicator.
  template <class Action>
  void guarded(const Action& action) {
    if (is_broken_.load(std::memory_order_acquire)) return give_up();
    try {
      const auto guard = peers_->lock();
      action();
    } catch (const Error& error) {
      fail(Status(error.code(), error.text()));
      give_up();
    }
  }
  Status outcome(const Pending& pending) { return pending.done ? Status() : broken(); }
  void progress();
  void advance_all();
  void give_up();
  void fail_late(const Pending& pending, Duration waited);

  std::unique_ptr<PointToPoint> peers_;
  Group group_;
  uint64_t operations_ = 0;
  std::vector<std::shared_ptr<Pending>> active_;
  RollCall roll_call_;
  SharedOperationId awaited_;
  bool gave_up_ = false;
  std::atomic<bool> is_broken_{false};
  std::mutex mutex_;
  Status broken_;
};

class EngineOperation : public CollectiveOperation {
 public:
  EngineOperation(std::shared_ptr<Engine> engine, std::shared_ptr<Pending> pending)
      : engine_(std::move(engine)), pending_(std::move(pending)) {}
  bool test() override { return engine_->test(*pending_); }
  Status wait(TimePoint deadline) override { return engine_->wait(*pending_, deadline); }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Pending> pending_;
};

}  // namespace fleet::transport::collective_detail

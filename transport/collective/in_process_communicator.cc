#include "transport/collective/in_process_communicator.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "transport/collective/communicator.h"
#include "transport/collective/memory_peer_impl.h"

namespace fleet::transport {

using collective_detail::Inbox;
using collective_detail::MemoryMessage;

// What the ranks share, under one mutex.
struct InProcessGroup::State {
  struct Rank {
    Inbox inbox;
    std::condition_variable changed;
    bool gone = false;
  };

  explicit State(int count) : ranks(static_cast<size_t>(count)) {}
  Rank& at(int rank) { return ranks[static_cast<size_t>(rank)]; }
  void wake_all() {
    for (Rank& rank : ranks) {
      rank.inbox.change();
      rank.changed.notify_all();
    }
  }

  std::mutex mutex;
  std::deque<Rank> ranks;
  Status broken;
};

namespace {

using State = InProcessGroup::State;

class InProcessPeer : public collective_detail::MemoryPeer {
 public:
  InProcessPeer(std::shared_ptr<State> state, int rank)
      : MemoryPeer(rank, static_cast<int>(state->ranks.size()), state->at(rank).inbox),
        state_(std::move(state)) {}

  ~InProcessPeer() override {
    const std::lock_guard guard(state_->mutex);
    state_->at(rank()).gone = true;
    state_->wake_all();
  }

  std::unique_lock<std::mutex> lock() override { return std::unique_lock(state_->mutex); }

  void poll() override {
    seen_ = inbox().changes();
    state_->broken.throw_if_error();
    MemoryPeer::poll();
  }

  void rest(Duration, TimePoint deadline) override {
    std::unique_lock guard(state_->mutex);
    state_->at(rank()).changed.wait_until(guard, deadline,
                                          [&] { return inbox().changes() != seen_; });
  }

  void failed(const Status& reason) override {
    const std::lock_guard guard(state_->mutex);
    if (state_->broken.ok()) state_->broken = reason;
    state_->wake_all();
  }

 protected:
  void post(int to, MemoryMessage message, std::span<const std::byte> bytes) override {
    message.bytes.assign(bytes.begin(), bytes.end());
    auto& there = state_->at(to);
    there.inbox.deliver(std::move(message));
    there.changed.notify_all();
  }
  bool is_gone(int other) const override { return state_->at(other).gone; }

 private:
  std::shared_ptr<State> state_;
  uint64_t seen_ = 0;
};

}  // namespace

InProcessGroup::InProcessGroup(int size) : state_(std::make_shared<State>(size)) {}
InProcessGroup::~InProcessGroup() = default;

std::unique_ptr<CollectiveCommunicator> InProcessGroup::member(int rank) {
  return make_communicator(std::make_unique<InProcessPeer>(state_, rank));
}

}  // namespace fleet::transport

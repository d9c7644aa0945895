#include <algorithm>

#include "transport/collective/engine_impl.h"

namespace fleet::transport::collective_detail {
namespace {

// Operations before its own that a rank answers a roll call for.
constexpr uint64_t kEarlier = 16;
constexpr Duration kRollCallTime = std::chrono::seconds(5);

// The time of a waiting thread.
class Patience {
 public:
  explicit Patience(TimePoint deadline)
      : start_(steady_clock().now()), now_(start_), moved_(start_), deadline_(deadline) {}

  // False when the deadline has passed.
  bool rest(PointToPoint& peers) {
    now_ = steady_clock().now();
    if (now_ >= deadline_) return false;
    if (const uint64_t progress = peers.progress(); progress != progress_) {
      progress_ = progress;
      moved_ = now_;
    }
    peers.rest(now_ - moved_, std::min(deadline_, now_ + kGlance));
    return true;
  }
  // True when so little is left that it is time to find out who is missing.
  bool is_short() const {
    return now_ > start_ && deadline_ - now_ < std::min((deadline_ - start_) / 2, kRollCallTime);
  }
  Duration waited() const { return steady_clock().now() - start_; }

 private:
  // For which a rest may overlook that somebody aborts.
  static constexpr Duration kGlance = std::chrono::milliseconds(20);

  uint64_t progress_ = 0;
  TimePoint start_;
  TimePoint now_;
  TimePoint moved_;
  TimePoint deadline_;
};

}  // namespace

void RollCall::make(PointToPoint& peers, uint64_t now) {
  std::erase_if(sent_, [](const auto& set) { return set->test(); });
  for (uint64_t number = std::max(next_, now - std::min(now, kEarlier)); number <= now; ++number) {
    auto& set = sent_.emplace_back(peers.messages({kRollCallSequence + number}));
    for (int rank = 0; rank < peers.size(); ++rank) {
      if (rank != peers.rank()) set->send(rank, {});
    }
    next_ = number + 1;
  }
  received_ = peers.messages({kRollCallSequence + now});
  for (int rank = 0; rank < peers.size(); ++rank) {
    if (rank != peers.rank()) received_->receive(rank, {});
  }
}

std::vector<int> RollCall::missing() {
  std::vector<int> ranks;
  if (received_ && !received_->test()) received_->unfinished(ranks);
  return ranks;
}

Engine::~Engine() {
  if (!active_.empty()) give_up();
  const auto guard = peers_->lock();
  active_.clear();
  roll_call_ = {};
}

bool Engine::test(const Pending& pending) {
  if (!pending.done) progress();
  return pending.done || is_broken_.load(std::memory_order_acquire);
}

Status Engine::wait(const Pending& pending, TimePoint deadline) {
  if (test(pending)) return outcome(pending);
  awaited_.set(pending.id);
  Patience patience(deadline);
  bool called = false;
  while (!test(pending)) {
    if (!called && patience.is_short()) {
      called = true;
      guarded([&] { roll_call_.make(*peers_, pending.id.sequence); });
    }
    if (!patience.rest(*peers_)) fail_late(pending, patience.waited());
  }
  awaited_.clear();
  return outcome(pending);
}

std::string Engine::awaited() const {
  const auto id = awaited_.get();
  return id ? id->to_string() : std::string();
}

Status Engine::broken() {
  if (!is_broken_.load(std::memory_order_acquire)) return {};
  const std::lock_guard guard(mutex_);
  return broken_;
}

void Engine::fail(const Status& reason) {
  {
    const std::lock_guard guard(mutex_);
    if (!broken_.ok()) return;
    broken_ = reason;
    is_broken_.store(true, std::memory_order_release);
  }
  peers_->failed(reason);
}

void Engine::progress() {
  guarded([&] { advance_all(); });
}

void Engine::advance_all() {
  peers_->poll();
  for (auto& pending : active_) {
    if (!pending->machine->advance()) continue;
    pending->done = true;
    pending->machine.reset();
  }
  std::erase_if(active_, [](const auto& pending) { return pending->done; });
}

void Engine::give_up() {
  if (gave_up_) return;
  gave_up_ = true;
  peers_->give_up(group_.scratch.owners());
}

void Engine::fail_late(const Pending& pending, Duration waited) {
  std::vector<int> missing;
  guarded([&] {
    missing = roll_call_.missing();
    if (missing.empty()) pending.machine->waits_for(missing);
  });
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  fail(missing_ranks(name_of(pending.id.kind), pending.label, group_.rank, missing, waited));
  give_up();
}

}  // namespace fleet::transport::collective_detail

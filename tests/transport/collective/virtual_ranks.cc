#include "tests/transport/collective/virtual_ranks.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>

#include "transport/collective/memory_peer_impl.h"

namespace fleet::transport::testing_reference {

using collective_detail::Inbox;
using collective_detail::MemoryMessage;

struct VirtualRanks::World {
  struct Rank {
    Inbox inbox;
    Duration sends_until{0};
    Duration receives_until{0};
    Traffic sent;
  };
  // The beginning of a message reaches the receiver's port, or its end has come through it.
  struct Event {
    int to;
    MemoryMessage message;
    bool ends;
  };

  Duration span_of(const MemoryMessage& message) const {
    const double seconds = static_cast<double>(message.size) / network.bytes_per_second;
    return network.overhead + Duration(static_cast<int64_t>(seconds * 1e9));
  }

  void post(int to, MemoryMessage message) {
    Rank& sender = ranks[static_cast<size_t>(message.from)];
    ++sender.sent.messages;
    sender.sent.bytes += message.size;
    const Duration start = std::max(now, sender.sends_until);
    sender.sends_until = start + span_of(message);
    Duration travels = network.latency;
    if (network.jitter.count() > 0) {
      travels +=
          Duration(static_cast<int64_t>(random() % static_cast<uint64_t>(network.jitter.count())));
    }
    events.emplace(start + travels, Event{to, std::move(message), false});
  }

  // Goes on to the next event; the rank that has got a message, or -1.
  int step() {
    auto node = events.extract(events.begin());
    now = node.key();
    Event& event = node.mapped();
    Rank& receiver = ranks[static_cast<size_t>(event.to)];
    if (event.ends) {
      receiver.inbox.deliver(std::move(event.message));
      return event.to;
    }
    receiver.receives_until = std::max(now, receiver.receives_until) + span_of(event.message);
    event.ends = true;
    node.key() = receiver.receives_until;
    events.insert(std::move(node));
    return -1;
  }

  VirtualNetwork network;
  std::mt19937_64 random;
  Duration now{0};
  std::deque<Rank> ranks;
  std::multimap<Duration, Event> events;
};

namespace {

class VirtualPeer : public collective_detail::MemoryPeer {
 public:
  VirtualPeer(VirtualRanks::World& world, int rank)
      : MemoryPeer(rank, static_cast<int>(world.ranks.size()),
                   world.ranks[static_cast<size_t>(rank)].inbox),
        world_(world) {}
  void rest(Duration, TimePoint) override {}

 protected:
  void post(int to, MemoryMessage message, std::span<const std::byte> bytes) override {
    if (world_.network.payloads) message.bytes.assign(bytes.begin(), bytes.end());
    world_.post(to, std::move(message));
  }

 private:
  VirtualRanks::World& world_;
};

}  // namespace

VirtualRanks::VirtualRanks(int ranks, uint64_t seed, VirtualNetwork network,
                           CommunicatorOptions options)
    : world_(std::make_unique<World>()) {
  world_->network = network;
  world_->random.seed(seed);
  world_->ranks.resize(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    communicators_.push_back(
        make_communicator(std::make_unique<VirtualPeer>(*world_, rank), options));
  }
}

VirtualRanks::~VirtualRanks() = default;

int VirtualRanks::size() const {
  return static_cast<int>(communicators_.size());
}

CollectiveCommunicator& VirtualRanks::at(int rank) {
  return *communicators_[static_cast<size_t>(rank)];
}

std::vector<int> VirtualRanks::stirred() {
  std::vector<int> order(communicators_.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), world_->random);
  return order;
}

bool VirtualRanks::run(std::vector<std::vector<CollectiveToken>>& tokens) {
  const auto done = [&](size_t rank) {
    auto& own = tokens[rank];
    return std::all_of(own.begin(), own.end(), [](auto& token) { return token.test(); });
  };
  std::vector<bool> finished(tokens.size());
  for (const int rank : stirred()) {
    finished[static_cast<size_t>(rank)] = done(static_cast<size_t>(rank));
  }
  while (!world_->events.empty()) {
    const int rank = world_->step();
    if (rank >= 0) finished[static_cast<size_t>(rank)] = done(static_cast<size_t>(rank));
  }
  return std::all_of(finished.begin(), finished.end(), [](bool value) { return value; });
}

Duration VirtualRanks::now() const {
  return world_->now;
}

VirtualRanks::Traffic VirtualRanks::sent(int rank) const {
  return world_->ranks[static_cast<size_t>(rank)].sent;
}

}  // namespace fleet::transport::testing_reference

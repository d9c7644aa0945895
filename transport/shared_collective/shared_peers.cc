#include "transport/shared_collective/shared_peers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "transport/session/frame.h"

namespace fleet::transport {
namespace {

using SlotHeader = ArenaLayout::SlotHeader;

// How long a waiting rank looks again at once, and until when it offers its core in between.
constexpr Duration kSpin = std::chrono::microseconds(20);
constexpr Duration kYield = std::chrono::microseconds(200);
// For messages that come before their receives, over all ranks.
constexpr uint64_t kEarlyBytes = 64 * 1024 * 1024;
// Answers to messages that were asked for give nothing back.
constexpr uint64_t kNoGrant = 1;

enum Frame : uint8_t { kMessage, kAskedFor, kMore, kOffer, kAsk };

Status breach(int from, std::string expected, std::string got) {
  return Status(ErrorCode::kBadFrame, {.what = "a message in shared memory is not valid",
                                       .where = str_cat("messages of rank ", from),
                                       .expected = std::move(expected),
                                       .got = std::move(got),
                                       .fix = {}});
}

// Answers of the matcher carry one number: the cost of what was granted, or an offer's.
uint64_t of_grant(uint64_t cost) {
  return cost << 1;
}
uint64_t of_offer(uint64_t number) {
  return number << 1 | 1;
}

}  // namespace

// ---- message sets

class SharedPeers::Messages final : public MessageSet {
 public:
  Messages(SharedPeers& peers, const OperationId& operation) : peers_(peers), id_(operation) {
    const Status begun = peers_.matcher_.begin(operation);
    if (begun.ok()) return;
    peers_.matcher_.end(operation.sequence);
    begun.throw_if_error();
  }
  ~Messages() override;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  bool test() override;
  void unfinished(std::vector<int>& ranks) override;

 private:
  struct Receive {
    int from = 0;
    uint32_t number = 0;
  };

  SharedPeers& peers_;
  OperationId id_;
  size_t open_ = 0;  // receives that are not done
  std::vector<std::shared_ptr<Send>> sends_;
  std::vector<Receive> receives_;
};

// A message of which the receiver has a part is sent to its end, without its bytes.
SharedPeers::Messages::~Messages() {
  for (const auto& send : sends_) {
    if (send->done) continue;
    send->bytes = nullptr;
    auto& other = peers_.peer(send->to);
    std::erase_if(other.queue,
                  [&](const Outgoing& next) { return next.send == send && next.sent == 0; });
    std::erase_if(other.offers, [&](const auto& offer) { return offer.second == send; });
  }
  for (const auto& [from, number] : receives_) {
    auto& incoming = peers_.peer(from).incoming;
    if (peers_.matcher_.abandon(id_.sequence, from, number) && incoming) {
      incoming->target = PayloadTarget::discard();
    }
  }
  peers_.matcher_.end(id_.sequence);
}

void SharedPeers::Messages::send(int to, std::span<const std::byte> bytes) {
  peers_.check_rank(to, "MessageSet::send");
  const uint32_t number = peers_.matcher_.next_send(id_.sequence, to);
  sends_.push_back(
      std::make_shared<Send>(Send{to, {id_, number, bytes.size()}, bytes.data(), false}));
  peers_.send(sends_.back());
}

void SharedPeers::Messages::receive(int from, std::span<std::byte> bytes) {
  peers_.check_rank(from, "MessageSet::receive");
  receives_.push_back({from, peers_.matcher_.post(id_.sequence, from, bytes, open_).value()});
  peers_.send_answers();
}

bool SharedPeers::Messages::test() {
  const auto done = [](const auto& send) { return send->done; };
  if (open_ > 0 || !std::all_of(sends_.begin(), sends_.end(), done)) return false;
  sends_.clear();
  receives_.clear();
  return true;
}

void SharedPeers::Messages::unfinished(std::vector<int>& ranks) {
  const size_t before = ranks.size();
  for (const auto& [from, number] : receives_) {
    if (!peers_.matcher_.is_done(id_.sequence, from, number)) ranks.push_back(from);
  }
  if (ranks.size() != before) return;
  for (const auto& send : sends_) {
    if (!send->done) ranks.push_back(send->to);
  }
}

std::unique_ptr<MessageSet> SharedPeers::messages(const OperationId& operation) {
  return std::make_unique<Messages>(*this, operation);
}

// ---- the group

SharedPeers::SharedPeers(int rank, std::shared_ptr<Arena> own,
                         std::vector<std::shared_ptr<const Arena>> arenas)
    : rank_(rank),
      own_(std::move(own)),
      heap_(own_, arenas),
      peers_(arenas.size()),
      matcher_(rank, size(), grant_of_each()),
      spins_(static_cast<int>(arenas.size()) <= usable_cores()) {
  for (size_t i = 0; i < peers_.size(); ++i) peers_[i].arena = std::move(arenas[i]);
}

SharedPeers::~SharedPeers() {
  own_->state().has_left.store(1);
  for (const Peer& other : peers_) other.arena->ring();
}

uint64_t SharedPeers::grant_of_each() const {
  return kEarlyBytes / std::max<uint64_t>(1, peers_.size() - 1);
}

void SharedPeers::check_rank(int rank, std::string_view call) const {
  if (rank >= 0 && rank < size() && rank != rank_) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "there is no such other rank",
                                            .where = std::string(call),
                                            .expected = str_cat("another rank below ", size()),
                                            .got = str_cat("rank ", rank),
                                            .fix = {}});
}

// ---- sending

void SharedPeers::send(const std::shared_ptr<Send>& send) {
  Peer& other = peer(send->to);
  const uint64_t cost = MessageMatcher::early_cost(send->id.bytes);
  const uint64_t returned = line_of(send->to).returned.load(std::memory_order_acquire);
  if (returned > other.granted) {
    breach(send->to, str_cat("at most ", other.granted, " bytes given back"), str_cat(returned))
        .throw_if_error();
  }
  const uint64_t used = other.granted - returned;
  if (used <= grant_of_each() && cost <= grant_of_each() - used) {
    other.granted += cost;
    other.queue.push_back({kMessage, send->id, 0, send, 0});
  } else {
    other.offers.emplace(++offers_, send);
    other.queue.push_back({kOffer, send->id, offers_, nullptr, 0});
  }
  flush(send->to);
}

// Fills slots as long as there are some.
void SharedPeers::flush(int to) {
  Peer& other = peer(to);
  bool any = false;
  while (!other.queue.empty()) {
    const uint64_t taken = line_of(to).taken.load(std::memory_order_acquire);
    if (taken > other.put) {
      breach(to, str_cat("at most ", other.put, " slots taken"), str_cat(taken)).throw_if_error();
    }
    if (other.put - taken >= ArenaLayout::kSlots) break;
    any = true;
    if (put_slot(to, other.queue.front())) other.queue.pop_front();
    line(to).put.store(++other.put);
    ++moved_;
  }
  if (any) other.arena->ring();
}

// True when that was the last of it.
bool SharedPeers::put_slot(int to, Outgoing& next) {
  std::byte* const slot = own_->slot(to, peer(to).put);
  const OperationId& operation = next.id.operation;
  const uint64_t left = next.send ? next.id.bytes - next.sent : 0;
  const uint64_t bytes = std::min<uint64_t>(left, ArenaLayout::kPayloadBytes);
  const SlotHeader header{.sequence = operation.sequence,
                          .count = operation.count,
                          .message_bytes = next.id.bytes,
                          .request = next.request,
                          .number = next.id.number,
                          .slot_bytes = static_cast<uint32_t>(bytes),
                          .frame = next.sent == 0 ? next.frame : uint8_t{kMore},
                          .kind = static_cast<uint8_t>(operation.kind),
                          .type = static_cast<uint8_t>(operation.type)};
  std::memcpy(slot, &header, sizeof header);
  if (bytes > 0 && next.send->bytes != nullptr) {
    std::memcpy(slot + (ArenaLayout::kSlotBytes - ArenaLayout::kPayloadBytes),
                next.send->bytes + next.sent, bytes);
  }
  next.sent += bytes;
  if (bytes < left) return false;
  if (next.send) next.send->done = true;
  return true;
}

// ---- receiving

void SharedPeers::drain(int from) {
  Peer& other = peer(from);
  const uint64_t put = line_of(from).put.load(std::memory_order_acquire);
  if (put == other.taken) return;
  if (put < other.taken || put - other.taken > ArenaLayout::kSlots) {
    breach(from, str_cat("up to ", ArenaLayout::kSlots, " slots after ", other.taken), str_cat(put))
        .throw_if_error();
  }
  while (other.taken != put) {
    const std::byte* const slot = other.arena->slot(rank_, other.taken);
    SlotHeader header;
    std::memcpy(&header, slot, sizeof header);
    // From here on only the copy is looked at.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    take_slot(from, header, slot + (ArenaLayout::kSlotBytes - ArenaLayout::kPayloadBytes));
    line(from).taken.store(++other.taken);
    ++moved_;
  }
  other.arena->ring();
}

void SharedPeers::take_slot(int from, const SlotHeader& header, const std::byte* bytes) {
  Peer& other = peer(from);
  const bool begins = header.frame != kMore;
  if (header.frame > kAsk || begins == other.incoming.has_value() ||
      header.slot_bytes > ArenaLayout::kPayloadBytes) {
    breach(from, "the next slot of a message", str_cat("frame ", int{header.frame}))
        .throw_if_error();
  }
  if (header.frame == kAsk) return ask(from, header.request);
  if (begins) begin_message(from, header);
  if (header.frame == kOffer) return;
  Incoming& now = *other.incoming;
  const uint64_t left = now.id.bytes - now.received;
  if (header.slot_bytes != std::min<uint64_t>(left, ArenaLayout::kPayloadBytes)) {
    breach(from, str_cat(left, " bytes"), str_cat(header.slot_bytes)).throw_if_error();
  }
  if (!now.target.discarded && header.slot_bytes > 0) {
    std::memcpy(now.target.memory.data() + now.received, bytes, header.slot_bytes);
  }
  now.received += header.slot_bytes;
  if (now.received < now.id.bytes) return;
  const Incoming whole = std::move(*std::exchange(other.incoming, std::nullopt));
  matcher_.arrived(from, whole.id, whole.request).throw_if_error();
  send_answers();
}

// A message or an offer.
void SharedPeers::begin_message(int from, const SlotHeader& header) {
  if (header.kind > static_cast<uint8_t>(CollectiveKind::kBarrier) ||
      header.type > static_cast<uint8_t>(ElementType::kBFloat16)) {
    breach(from, "a known kind and type", str_cat(int{header.kind}, ", ", int{header.type}))
        .throw_if_error();
  }
  const MessageId id{{header.sequence, static_cast<CollectiveKind>(header.kind),
                      static_cast<ElementType>(header.type), header.count},
                     header.number,
                     header.message_bytes};
  matcher_.compare(from, id).throw_if_error();
  if (header.frame == kOffer) {
    matcher_.offered(from, id, of_offer(header.request)).throw_if_error();
    return send_answers();
  }
  const bool asked_for = header.frame == kAskedFor;
  Incoming incoming{
      id, {}, asked_for ? kNoGrant : of_grant(MessageMatcher::early_cost(id.bytes)), 0};
  if (id.bytes > 0) {
    incoming.target = matcher_.target(from, id, asked_for);
    incoming.target.refusal.throw_if_error();
  }
  peer(from).incoming = std::move(incoming);
}

// The other rank has a receive for what was offered.
void SharedPeers::ask(int from, uint64_t request) {
  Peer& other = peer(from);
  const auto found = other.offers.find(request);
  if (found == other.offers.end()) return;
  const auto send = std::move(found->second);
  other.offers.erase(found);
  other.queue.push_back({kAskedFor, send->id, 0, send, 0});
  flush(from);
}

void SharedPeers::send_answers() {
  for (const DueAnswer& due : matcher_.take_answers()) {
    Peer& other = peer(due.rank);
    if (due.request == kNoGrant) continue;
    if ((due.request & 1) != 0) {
      other.queue.push_back({kAsk, {}, due.request >> 1, nullptr, 0});
      flush(due.rank);
      continue;
    }
    other.returned += due.request >> 1;
    line(due.rank).returned.store(other.returned, std::memory_order_release);
  }
}

// ---- driving

void SharedPeers::poll() {
  check_failures();
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    const bool left = peer(other).arena->state().has_left.load(std::memory_order_acquire) != 0;
    drain(other);
    flush(other);
    if (!left || matcher_.waiting_for(other) == 0) continue;
    throw_error(ErrorCode::kPeerLost,
                {.what = str_cat("rank ", other, " has left the group"),
                 .where = str_cat("rank ", rank_),
                 .expected = "its messages of operations under way",
                 .got = "the end of its communicator",
                 .fix = str_cat("read the log of rank ", other, ", which takes another path")});
  }
}

void SharedPeers::check_failures() {
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    const ArenaLayout::State& state = peer(other).arena->state();
    const uint32_t bytes = state.failure_bytes.load(std::memory_order_acquire);
    if (bytes == 0) continue;
    std::vector<std::byte> said(std::min<size_t>(bytes, state.failure.size()));
    std::memcpy(said.data(), state.failure.data(), said.size());
    const Status why = decode_status(said);
    ErrorText text = why.text();
    text.where = str_cat(text.where, text.where.empty() ? "" : ", ", "as rank ", other, " says");
    throw_error(why.code(), std::move(text));
  }
}

// Something for this rank to do: a slot to empty, or one to fill, or a rank that failed or left.
bool SharedPeers::has_news() const {
  if (own_->state().failure_bytes.load() != 0) return true;
  for (int other = 0; other < size(); ++other) {
    const Peer& there = peers_[static_cast<size_t>(other)];
    if (other == rank_) continue;
    const ArenaLayout::Line& line = line_of(other);
    const ArenaLayout::State& state = there.arena->state();
    if (line.put.load() != there.taken || state.failure_bytes.load() != 0) return true;
    if (!there.queue.empty() && there.put - line.taken.load() < ArenaLayout::kSlots) return true;
    if (state.has_left.load() != 0 && matcher_.waiting_for(other) > 0) return true;
  }
  return false;
}

void SharedPeers::rest(Duration idle, TimePoint deadline) {
  if (spins_ && idle < kSpin) return __builtin_ia32_pause();
  if (idle < kYield) {
    sched_yield();
    return;
  }
  const uint32_t heard = own_->bell().rings.load();
  own_->state().sleeps.store(1);
  if (!has_news()) own_->sleep(heard, (deadline - steady_clock().now()).count());
  own_->state().sleeps.store(0);
}

// ---- the end

void SharedPeers::failed(const Status& reason) {
  const std::lock_guard guard(failure_mutex_);
  ArenaLayout::State& state = own_->state();
  if (state.failure_bytes.load() != 0) return;
  const auto text = encode_status(reason);
  const size_t bytes = std::min(text.size(), state.failure.size());
  std::memcpy(state.failure.data(), text.data(), bytes);
  state.failure_bytes.store(static_cast<uint32_t>(bytes));
  for (const Peer& other : peers_) other.arena->ring();
}

void SharedPeers::give_up(std::vector<std::shared_ptr<const void>>) {
  for (Peer& other : peers_) {
    other.queue.clear();
    other.incoming.reset();
  }
}

}  // namespace fleet::transport

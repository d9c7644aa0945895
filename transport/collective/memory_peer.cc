#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "transport/collective/memory_peer_impl.h"

namespace fleet::transport::collective_detail {

namespace {
constexpr size_t kCallsRemembered = 1024;
}  // namespace

void Inbox::deliver(MemoryMessage message) {
  change();
  const Key key{message.id.sequence, message.from, message.number};
  const auto ours = called_.find(message.id.sequence);
  if (ours != called_.end()) compare(ours->second, message);
  messages_.insert_or_assign(key, std::move(message));
}

MemoryMessage Inbox::take(const Key& key) {
  return std::move(messages_.extract(key).mapped());
}

void Inbox::call(const OperationId& id) {
  if (!called_.try_emplace(id.sequence, id).second) return;
  if (called_.size() > kCallsRemembered) called_.erase(called_.begin());
  const auto first = messages_.lower_bound({id.sequence, 0, 0});
  for (auto it = first; it != messages_.end() && it->first.sequence == id.sequence; ++it) {
    compare(id, it->second);
  }
}

void Inbox::compare(const OperationId& ours, const MemoryMessage& theirs) {
  if (ours != theirs.id && different_.empty()) different_.push_back(theirs);
}

Status Inbox::mismatch(int rank) const {
  if (different_.empty()) return {};
  const MemoryMessage& theirs = different_.front();
  return different_operations(called_.at(theirs.id.sequence), rank, theirs.id.to_string(),
                              theirs.from);
}

const MemoryMessage* Inbox::first() const {
  return messages_.empty() ? nullptr : &messages_.begin()->second;
}

const OperationId* Inbox::called(uint64_t sequence) const {
  const auto found = called_.find(sequence);
  return found == called_.end() ? nullptr : &found->second;
}

class MemoryPeer::Messages : public MessageSet {
 public:
  Messages(MemoryPeer& peer, const OperationId& id, std::shared_ptr<Counts> counts)
      : peer_(peer), id_(id), counts_(std::move(counts)) {}
  ~Messages() override {
    if (counts_.use_count() == 1) peer_.counts_.erase(id_.sequence);
  }

  void send(int to, std::span<const std::byte> bytes) override {
    const uint64_t number = counts_->sent[static_cast<size_t>(to)]++;
    peer_.post(to, {id_, peer_.rank_, number, bytes.size(), {}}, bytes);
  }
  void receive(int from, std::span<std::byte> bytes) override {
    const uint64_t number = counts_->received[static_cast<size_t>(from)]++;
    waiting_.push_back({{id_.sequence, from, number}, bytes});
  }

  bool test() override {
    std::erase_if(waiting_, [&](const Waiting& waiting) {
      if (!peer_.inbox_.has(waiting.key)) return false;
      fill(waiting, peer_.inbox_.take(waiting.key));
      ++peer_.progress_;
      return true;
    });
    for (const Waiting& waiting : waiting_) {
      if (peer_.is_gone(waiting.key.from)) fail_gone(waiting.key.from);
    }
    return waiting_.empty();
  }

  void unfinished(std::vector<int>& ranks) override {
    for (const Waiting& waiting : waiting_) ranks.push_back(waiting.key.from);
  }

 private:
  struct Waiting {
    Inbox::Key key;
    std::span<std::byte> bytes;
  };

  void fill(const Waiting& waiting, const MemoryMessage& message) const {
    if (message.size != waiting.bytes.size()) {
      const std::string theirs = str_cat(message.id.to_string(), " (a message of ", message.size,
                                         " bytes, not ", waiting.bytes.size(), ')');
      different_operations(id_, peer_.rank_, theirs, message.from).throw_if_error();
    }
    if (!message.bytes.empty()) {
      std::memcpy(waiting.bytes.data(), message.bytes.data(), message.bytes.size());
    }
  }

  [[noreturn]] void fail_gone(int rank) const {
    throw_error(ErrorCode::kPeerLost, {.what = str_cat("rank ", rank, " has left the job"),
                                       .where = str_cat("rank ", peer_.rank_),
                                       .expected = id_.to_string(),
                                       .got = "the end of its communicator",
                                       .fix = str_cat("see why rank ", rank, " ended earlier")});
  }

  MemoryPeer& peer_;
  OperationId id_;
  std::shared_ptr<Counts> counts_;
  std::vector<Waiting> waiting_;
};

void MemoryPeer::poll() {
  inbox_.mismatch(rank_).throw_if_error();
  const MemoryMessage* first = inbox_.first();
  if (first == nullptr || counts_.contains(first->id.sequence)) return;
  // Of an operation that is over here: the other rank has another root, or other counts.
  if (const OperationId* ours = inbox_.called(first->id.sequence)) {
    const std::string theirs = str_cat(first->id.to_string(), " (with messages to this rank)");
    different_operations(*ours, rank_, theirs, first->from).throw_if_error();
  }
}

std::unique_ptr<MessageSet> MemoryPeer::messages(const OperationId& operation) {
  if (operation.sequence < kRollCallSequence) inbox_.call(operation);
  auto& known = counts_[operation.sequence];
  auto counts = known.lock();
  if (!counts) known = counts = std::make_shared<Counts>(size_);
  return std::make_unique<Messages>(*this, operation, std::move(counts));
}

}  // namespace fleet::transport::collective_detail

// Point-to-point messages between ranks of one process, through its memory: what the communicators
// of threads and those under virtual time share. They differ in how a message gets to the other
// rank. Internal to transport_collective and to tests.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "transport/collective/point_to_point.h"

namespace fleet::transport::collective_detail {

struct MemoryMessage {
  OperationId id;
  int from = 0;
  uint64_t number = 0;  // among those of the operation from there
  size_t size = 0;
  std::vector<std::byte> bytes;  // empty where only sizes are of interest
};

// What has come to one rank and was not received yet. Not for several threads at once.
class Inbox {
 public:
  struct Key {
    uint64_t sequence;
    int from;
    uint64_t number;
    bool operator<(const Key& other) const {
      return std::tie(sequence, from, number) < std::tie(other.sequence, other.from, other.number);
    }
  };

  void deliver(MemoryMessage message);
  bool has(const Key& key) const { return messages_.contains(key); }
  MemoryMessage take(const Key& key);
  // Remembers which operation of that number this rank calls.
  void call(const OperationId& id);
  // An error when another rank's message is of another operation than this rank's.
  Status mismatch(int rank) const;
  // The first message, by operation, that was not received; null without one.
  const MemoryMessage* first() const;
  // What this rank calls, or null.
  const OperationId* called(uint64_t sequence) const;
  // For those who wait: something has changed, and how often that was so.
  void change() { ++changes_; }
  uint64_t changes() const { return changes_; }

 private:
  void compare(const OperationId& ours, const MemoryMessage& theirs);

  std::map<Key, MemoryMessage> messages_;
  std::map<uint64_t, OperationId> called_;  // the last ones
  uint64_t changes_ = 0;
  std::vector<MemoryMessage> different_;  // at most one
};

class MemoryPeer : public PointToPoint {
 public:
  MemoryPeer(int rank, int size, Inbox& inbox) : rank_(rank), size_(size), inbox_(inbox) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<MessageSet> messages(const OperationId& operation) override;
  void poll() override;
  uint64_t progress() const override { return progress_; }
  void give_up(std::vector<std::shared_ptr<const void>>) override {}

 protected:
  Inbox& inbox() { return inbox_; }
  // Gets a message of these bytes, which are the caller's, to the inbox of a rank.
  virtual void post(int to, MemoryMessage message, std::span<const std::byte> bytes) = 0;
  // True when nothing will ever come from there again.
  virtual bool is_gone(int) const { return false; }

 private:
  class Messages;
  // How many messages of an operation went to and are asked of each rank.
  struct Counts {
    explicit Counts(int size) : sent(static_cast<size_t>(size)), received(sent) {}
    std::vector<uint64_t> sent;
    std::vector<uint64_t> received;
  };

  int rank_;
  int size_;
  Inbox& inbox_;
  uint64_t progress_ = 0;
  std::map<uint64_t, std::weak_ptr<Counts>> counts_;  // of operations that have message sets
};

}  // namespace fleet::transport::collective_detail

// Rounds of messages of one operation, several of them under way. Internal to transport_collective.
#pragma once

#include <deque>

#include "transport/collective/operations_impl.h"

namespace fleet::transport::collective_detail {

// A round first collects messages, then relays others. Rounds relay in order, and round r + window
// begins when round r has relayed: so what a rank sends to another has one order, whenever messages
// come. At most two windows are under way.
class Pipeline : public Machine {
 public:
  bool advance() final;
  void waits_for(std::vector<int>& ranks) final;

 protected:
  struct Round {
    size_t number = 0;
    std::unique_ptr<MessageSet> messages;
    Scratch scratch;
  };

  Pipeline(Group& group, const OperationId& id, size_t rounds, size_t window)
      : group_(group), id_(id), rounds_(rounds), window_(window) {}
  // Of constructors: begins the first rounds.
  void start();
  virtual void begin(Round& round) = 0;
  // When everything has come that begin() asked for, and everything has gone that it sent.
  virtual void relay(Round& round) = 0;

  Group& group_;

 private:
  void begin_next();

  const OperationId id_;
  const size_t rounds_;
  const size_t window_;
  size_t relayed_ = 0;
  size_t finished_ = 0;
  std::deque<Round> active_;                         // from round finished_ on
  std::vector<std::unique_ptr<MessageSet>> unused_;  // of finished rounds
};

}  // namespace fleet::transport::collective_detail
